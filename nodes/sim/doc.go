// Package sim is a simulated cloud region with a K3s cluster in it, on virtual time. It behaves where behaviour matters to an
// autoscaler: client tokens are idempotent per zone and bound to their first request, capacity runs out per zone, type and market,
// new instances are not listed at once, nodes boot after a while or never, flap, hold pods that block a drain, and are taken
// away by Spot warnings; every part can be unreachable or answer with half a list.
//
// A Client is one process's access to the simulator and implements every interface that package nodes declares, so that a
// nodes.Reconciler runs on it unchanged. A Client's Hook sees every call before and after its effect; a harness uses it to crash,
// to lose replies and to interleave.
//
// Everything that happened is in one Ledger, in order, with the facts of the moment. What a test concludes it should conclude from
// there and not from what the reconciler says about itself.
package sim
