package awsapi_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// The SDK's own client sees the simulated region's instances.
func Example() {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}})
	api := awsapi.New(w, awsapi.Options{})
	server := httptest.NewServer(api)
	defer server.Close()

	client := ec2.New(ec2.Options{
		Region: "local", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
	})
	out, err := client.DescribeInstances(context.Background(), &ec2.DescribeInstancesInput{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			fmt.Println(aws.ToString(i.InstanceId), i.InstanceType, i.State.Name)
		}
	}
	fmt.Println(api.Permissions())
	// Output:
	// i-001 server running
	// i-002 t3.large running
	// [ec2:DescribeInstances]
}
