// Package console is the web page over both planes: nodes by zone with what is being done about them, the decision's gates with why
// nothing is done, workers and their slots, handoffs as they happen, charts and alarms of a chamber, and the timeline of events.
//
// A Console is an http.Handler that works offline and without a build step: the page, its script and its style are in the binary.
// It is told where to look by Options; what it is not told of it does not show. It is read-only unless it was given a token; then
// what a person does with it is confirmed on the page, carries the token, and is written into the timeline.
//
//	c, err := console.New(console.Options{Title: "fab-2", Nodes: nodePlane, Workers: workerPlane})
//	go c.Run(ctx)
//	http.ListenAndServe("127.0.0.1:8080", c)
package console
