package ec2_test

import (
	"fmt"

	"github.com/muster-dev/muster/nodes/ec2"
)

// A reference says where a token is, so that the token itself need not be written anywhere.
func ExampleParseRef() {
	ref, err := ec2.ParseRef("ssm:/muster/prod/agent-token")
	fmt.Println(ref.Service, ref.Name, err)
	// Output: ssm /muster/prod/agent-token <nil>
}
