// Package kubeapi serves the Kubernetes API of a simulated cluster over HTTP, so that a real client talks to it: lists in pages of one
// moment, field selectors, merge patches conditional on resource version and UID, deletion with preconditions, evictions with
// their grace and disruption budgets, access reviews, JSON and protobuf.
//
// It serves what the node plane uses and answers 404 to everything else, so that a test notices when the code begins to use more. It
// notes every verb and resource that was used, from which the least role can be derived, and it can be told to fail the ways
// that API servers do.
//
//	w := sim.New(sim.Options{Workers: []string{"a", "b"}})
//	server := httptest.NewServer(kubeapi.New(w.Client("kube", nil)))
package kubeapi
