// Package access opens NATS connections, and tells them who they are and whom they trust, by the environment. It links no server.
package access

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// Variables describes the environment variables by which connections prove who they are, for help texts. Names and meanings are those of
// the nats command, https://github.com/nats-io/natscli.
const Variables = "NATS_CREDS (credentials file), NATS_USER and NATS_PASSWORD, NATS_NKEY (seed file), NATS_CA (PEM of the CA that signed the servers' " +
	"certificates), NATS_CERT and NATS_KEY (PEM of the client's certificate and its key), NATS_INBOX_PREFIX (begins the subjects of answers; with NATS_USER it is _INBOX.<user>)"

// User is a user of a NATS server with a password.
type User struct{ Name, Password string }

// These say who connects.
const (
	varUser        = "NATS_USER"
	varPassword    = "NATS_PASSWORD"
	varCreds       = "NATS_CREDS"
	varNkey        = "NATS_NKEY"
	varInboxPrefix = "NATS_INBOX_PREFIX"
)

// These say whom it trusts, and who it is by TLS.
const (
	varCA   = "NATS_CA"
	varCert = "NATS_CERT"
	varKey  = "NATS_KEY"
)

// Over returns a lookup in which u is the user, and nothing else says who connects; for
// the zero User it is lookup itself.
func (u User) Over(lookup func(string) (string, bool)) func(string) (string, bool) {
	if u == (User{}) {
		return lookup
	}
	return func(name string) (string, bool) {
		switch name {
		case varUser:
			return u.Name, true
		case varPassword:
			return u.Password, true
		case varCreds, varNkey, varInboxPrefix:
			return "", false
		}
		return lookup(name)
	}
}

// Environ returns the variables that make a process connect as u, for exec.Cmd.Env; none
// for the zero User.
func (u User) Environ() []string {
	if u == (User{}) {
		return nil
	}
	return []string{varUser + "=" + u.Name, varPassword + "=" + u.Password, varCreds + "=", varNkey + "=", varInboxPrefix + "="}
}

// inboxPrefix returns what begins the subjects that answers come to: those of one user
// are of no concern to others, and a server with permissions keeps them apart by it.
func inboxPrefix(given, user string) (string, error) {
	if given == "" {
		if user == "" || !literal(user) || strings.Contains(user, ".") {
			return "", nil // the client's default
		}
		return "_INBOX." + user, nil
	}
	if !literal(given) {
		return "", fmt.Errorf("%s is %q: give a subject without wildcards, such as _INBOX.worker", varInboxPrefix, given)
	}
	return given, nil
}

// literal reports whether a text is a subject without wildcards.
func literal(text string) bool {
	for _, token := range strings.Split(text, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n") {
			return false
		}
	}
	return true
}

// Options returns the options that the environment asks for; lookup is os.LookupEnv. Every variable that names no readable file, and every half of a pair, is in
// the error.
func Options(lookup func(string) (string, bool)) ([]nats.Option, error) {
	var options []nats.Option
	var errs []error
	get := func(name string) string {
		v, _ := lookup(name)
		return v
	}
	file := func(name string) string {
		path := get(name)
		if path == "" {
			return ""
		}
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: name a file that can be read", name, err))
			return ""
		}
		return path
	}
	if path := file(varCreds); path != "" {
		options = append(options, nats.UserCredentials(path))
	}
	if path := file(varNkey); path != "" {
		option, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("NATS_NKEY: %w", err))
		} else {
			options = append(options, option)
		}
	}
	switch prefix, err := inboxPrefix(get(varInboxPrefix), get(varUser)); {
	case err != nil:
		errs = append(errs, err)
	case prefix != "":
		options = append(options, nats.CustomInboxPrefix(prefix))
	}
	switch user, password := get(varUser), get(varPassword); {
	case user != "":
		options = append(options, nats.UserInfo(user, password))
	case password != "":
		errs = append(errs, errors.New("NATS_PASSWORD is set without NATS_USER: set both"))
	}
	if path := file(varCA); path != "" {
		options = append(options, nats.RootCAs(path))
	}
	cert, key := file(varCert), file(varKey)
	switch {
	case cert != "" && key != "":
		options = append(options, nats.ClientCert(cert, key))
	case get(varCert) == "" != (get(varKey) == ""):
		errs = append(errs, errors.New("NATS_CERT and NATS_KEY go together: set both"))
	}
	return options, errors.Join(errs...)
}
