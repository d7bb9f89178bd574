package ec2

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// Ref says where a value is kept that is not written down elsewhere: an SSM parameter, ssm:NAME or ssm:NAME:VERSION, or a secret of
// Secrets Manager, secretsmanager:NAME or secretsmanager:NAME#VERSION, where NAME can be an ARN.
type Ref struct {
	Service string // ssm or secretsmanager
	Name    string
	Version string // "": the newest
}

var (
	ssmName    = regexp.MustCompile(`^/?[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	secretName = regexp.MustCompile(`^[A-Za-z0-9/_+=.@:-]+$`)
	refVersion = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
)

// ParseRef reads a reference.
func ParseRef(s string) (Ref, error) {
	service, name, _ := strings.Cut(s, ":")
	r := Ref{Service: service, Name: name}
	ok := false
	versioned := false
	switch service {
	case "ssm":
		r.Name, r.Version, versioned = strings.Cut(name, ":")
		ok = ssmName.MatchString(r.Name)
	case "secretsmanager":
		r.Name, r.Version, versioned = strings.Cut(name, "#")
		ok = secretName.MatchString(r.Name)
	}
	if !ok || versioned && !refVersion.MatchString(r.Version) || len(s) > 2048 {
		return Ref{}, fmt.Errorf("%.80q is no reference: write ssm:NAME, ssm:NAME:VERSION, secretsmanager:NAME or secretsmanager:NAME#VERSION", s)
	}
	return r, nil
}

// String returns the reference as ParseRef reads it.
func (r Ref) String() string {
	switch {
	case r.Version == "":
		return r.Service + ":" + r.Name
	case r.Service == "ssm":
		return r.Service + ":" + r.Name + ":" + r.Version
	}
	return r.Service + ":" + r.Name + "#" + r.Version
}

// Parameters is what Fetch needs of SSM; *ssm.Client has it.
type Parameters interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// Secrets is what Fetch needs of Secrets Manager; *secretsmanager.Client has it.
type Secrets interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// Fetch returns the value that a reference names. The error never contains it.
func (c *Cloud) Fetch(ctx context.Context, ref Ref) (string, error) {
	value, err := c.fetch(ctx, ref)
	switch {
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", ref, explained(err))
	case value == "":
		return "", fmt.Errorf("reading %s: it is empty", ref)
	}
	return value, nil
}

func (c *Cloud) fetch(ctx context.Context, ref Ref) (string, error) {
	switch {
	case ref.Service == "ssm" && c.api.Parameters != nil:
		name := ref.Name
		if ref.Version != "" {
			name += ":" + ref.Version
		}
		out, err := c.api.Parameters.GetParameter(ctx, &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
		if err != nil || out.Parameter == nil {
			return "", err
		}
		return aws.ToString(out.Parameter.Value), nil
	case ref.Service == "secretsmanager" && c.api.Secrets != nil:
		in := &secretsmanager.GetSecretValueInput{SecretId: &ref.Name}
		if ref.Version != "" {
			in.VersionId = &ref.Version
		}
		out, err := c.api.Secrets.GetSecretValue(ctx, in)
		if err != nil {
			return "", err
		}
		return aws.ToString(out.SecretString), nil
	}
	return "", errors.New("there is no client for " + ref.Service)
}
