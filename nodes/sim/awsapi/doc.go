// Package awsapi serves a simulated region over the wire: the EC2 query protocol and what Muster needs of STS, SSM, Secrets Manager
// and SQS, so that unmodified AWS SDK clients talk to a sim.Simulator.
//
// All services answer at one address and are told apart by their protocols, so one AWS_ENDPOINT_URL is enough:
//
//	w := sim.New(sim.Options{Policy: policy})
//	server := httptest.NewServer(awsapi.New(w, awsapi.Options{}))
//	os.Setenv("AWS_ENDPOINT_URL", server.URL)
//
// The behaviour is that of the simulator (tokens, shortages, visibility, states); what belongs to the wire is here: the protocols' errors,
// paging, dry runs and missing permissions, throttling, replies that are dropped, garbled or never come. Requests are neither
// authenticated nor is their signature verified. Every request is recorded, so that a test can tell which calls a program really
// makes, which is what its permissions are compared with.
package awsapi
