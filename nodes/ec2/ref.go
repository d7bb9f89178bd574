package ec2

import (
	"context"
	"fmt"
	"regexp"
	"strings"

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
