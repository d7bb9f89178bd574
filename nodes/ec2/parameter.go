package ec2

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/muster-dev/muster/setting"
)

// Parameter is a parameter of SSM as it was read.
type Parameter struct {
	Value   string
	Version int64 // of the value, also if the reference named none
}

// ReadParameter reads a parameter of SSM before there is a Config: settings can be kept in one. Region and endpoint are those of lookup,
// everything else comes from where the AWS SDK finds it.
func ReadParameter(ctx context.Context, lookup setting.Lookup, ref Ref) (Parameter, error) {
	if ref.Service != "ssm" {
		return Parameter{}, fmt.Errorf("%s is no parameter of SSM: write ssm:NAME or ssm:NAME:VERSION", ref)
	}
	c := connectionFromEnv(lookup)
	cfg, err := loadAWS(ctx, c)
	if err != nil {
		return Parameter{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	client := ssm.NewFromConfig(cfg, func(o *ssm.Options) { o.BaseEndpoint = endpoint(c, "ssm", o.BaseEndpoint) })
	p, err := getParameter(ctx, client, ref)
	if err != nil {
		return Parameter{}, fmt.Errorf("reading %s: %w", ref, explained(err))
	}
	return Parameter{aws.ToString(p.Value), p.Version}, nil
}

// getParameter reads a parameter, decrypted if it is encrypted.
func getParameter(ctx context.Context, api Parameters, ref Ref) (types.Parameter, error) {
	name := ref.Name
	if ref.Version != "" {
		name += ":" + ref.Version
	}
	out, err := api.GetParameter(ctx, &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
	switch {
	case err != nil:
		return types.Parameter{}, err
	case out.Parameter == nil || aws.ToString(out.Parameter.Value) == "":
		return types.Parameter{}, errors.New("it is empty")
	}
	return *out.Parameter, nil
}
