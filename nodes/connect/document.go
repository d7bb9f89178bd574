package connect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/setting"
)

// documentTime is how long reading a document from SSM may take: Lambda ends an initialisation after 10 s.
const documentTime = 8 * time.Second

// OtherForms are the settings that only one form of the node plane has: its daemon, its functions, or what speaks with the workers.
// A document may hold them for the one that reads it, so the others accept them. Their packages are not linked here.
var OtherForms = []string{
	"TICK_SEC", "STOP_TIMEOUT_SEC", "HTTP", "LOG_FORMAT", "LOG_LEVEL",
	"WORKERS_NATS_URL", "WORKERS_GROUP", "WORKERS_DEPLOYMENT",
	"LAMBDA_MARGIN_SEC",
}

// Document is settings that are kept together, be it in a file, in a parameter of SSM, or in the variable SETTINGS.
type Document struct {
	Name   string            // for people: the file, or the parameter with the version that was read
	Values map[string]string // by environment name
}

// UnreadError is a parameter of SSM that should hold settings and could not be read. What was written in it is not the reason.
type UnreadError struct {
	Ref string
	Err error
}

// Error says what was tried and what to do.
func (e *UnreadError) Error() string {
	return fmt.Sprintf("settings: %v: the caller needs ssm:GetParameter on %s, and kms:Decrypt if a key of your own encrypts it", e.Err, e.Ref)
}

// Unwrap returns what AWS or its SDK says.
func (e *UnreadError) Unwrap() error { return e.Err }

// Check is the error as a failed check.
func (e *UnreadError) Check() nodes.Check {
	return nodes.Check{Name: "settings: " + e.Ref, Detail: e.Err.Error(), Fix: "allow ssm:GetParameter on it, and kms:Decrypt if a key of your own encrypts it"}
}

// Check says where settings were read from.
func (d Document) Check() nodes.Check {
	return nodes.Check{Name: "settings: " + d.Name, OK: true, Detail: strconv.Itoa(len(d.Values)) + " settings"}
}

// Kept reports whether the document is in SSM.
func (d Document) Kept() bool { return inSSM(d.Name) }

func inSSM(name string) bool { return strings.HasPrefix(name, "ssm:") }

// ReadDocument reads settings from a YAML file, see ReadFile, or from a parameter of SSM with the same content, if name is ssm:NAME or
// ssm:NAME:VERSION. env has region and endpoint of AWS. The error is an *UnreadError if the parameter could not be read.
func ReadDocument(ctx context.Context, name string, known []string, env setting.Lookup) (Document, error) {
	if !inSSM(name) {
		values, err := ReadFile(name, slices.Concat(known, OtherForms))
		return Document{name, values}, err
	}
	ref, err := ec2.ParseRef(name)
	if err != nil {
		return Document{}, fmt.Errorf("reading settings: %w", err)
	}
	p, err := readParameter(ctx, ref, env)
	if err != nil {
		return Document{}, &UnreadError{name, err}
	}
	d := Document{Name: ec2.Ref{Service: ref.Service, Name: ref.Name, Version: strconv.FormatInt(p.Version, 10)}.String()}
	if d.Values, err = parseFile([]byte(p.Value), slices.Concat(known, OtherForms)); err != nil {
		return d, fmt.Errorf("%s: %w", d.Name, err)
	}
	return d, nil
}

func readParameter(ctx context.Context, ref ec2.Ref, env setting.Lookup) (ec2.Parameter, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, documentTime, fmt.Errorf("no answer within %s", documentTime))
	defer cancel()
	p, err := ec2.ReadParameter(ctx, env, ref)
	if err != nil && ctx.Err() != nil {
		return p, fmt.Errorf("reading %s: %w", ref, context.Cause(ctx))
	}
	return p, err
}

// DocumentFromEnv reads the settings of the variable SETTINGS: a mapping, or where in SSM one is kept. Without the variable there are none.
func DocumentFromEnv(ctx context.Context, env setting.Lookup, known []string) (Document, error) {
	text, _ := env(SettingsVar)
	switch {
	case strings.TrimSpace(text) == "":
		return Document{}, nil
	case inSSM(text):
		return ReadDocument(ctx, text, known, env)
	}
	values, err := parseFile([]byte(text), known)
	var wrong *setting.Error
	if err != nil && !errors.As(err, &wrong) { // without the value: it may hold what should not be there
		err = setting.Problems([]setting.Problem{{Setting: SettingsVar, Fix: "write ssm:NAME, or one mapping, for example {CPU_UP: 0.8, DRAIN_LOCAL_STORAGE: evict}: " + err.Error()}}, nil)
	}
	return Document{SettingsVar, values}, err
}
