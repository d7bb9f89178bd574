package command

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/broker/access"
)

// NATSFlag adds the flags that say where the NATS servers are. Secrets are no flags: everybody on the machine can read those.
func NATSFlag(f *pflag.FlagSet, url *string) {
	*url = "nats://127.0.0.1:4222"
	f.Var(&natsURL{flags: f, url: url, other: "context", word: "string", of: func(text string) string { return text }}, "nats",
		"URL of the NATS server, or several with commas between; tls:// encrypts. The environment says who connects: "+access.Variables)
	f.Var(&natsURL{flags: f, url: url, other: "nats", word: "name", of: access.ContextURL}, "context",
		"context of the nats command to connect by, instead of --nats; variables of the environment come first")
	f.Lookup("context").DefValue = "" // the text of both is the URL
}

// natsURL is one of two flags for the same URL.
type natsURL struct {
	flags *pflag.FlagSet
	url   *string
	other string // the flag that must not be given as well
	word  string // what help calls the value
	of    func(text string) string
}

func (u *natsURL) String() string {
	if u.url == nil { // pflag asks a zero value what the default is
		return ""
	}
	return *u.url
}

func (u *natsURL) Type() string { return u.word }

// Set takes the URL, unless the other flag has given one.
func (u *natsURL) Set(text string) error {
	if u.flags.Changed(u.other) {
		return errors.New("--nats and --context both say where the servers are: give one of them")
	}
	*u.url = u.of(text)
	return nil
}
