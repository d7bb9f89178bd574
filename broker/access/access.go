// Package access tells NATS connections who they are and whom they trust, by the environment.
package access

import (
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
)

// Variables describes the environment variables by which connections prove who they are, for help texts. Names and meanings are those of
// the nats command, https://github.com/nats-io/natscli.
const Variables = "NATS_CREDS (credentials file), NATS_USER and NATS_PASSWORD, NATS_NKEY (seed file), NATS_CA (PEM of the CA that signed the servers' " +
	"certificates), NATS_CERT and NATS_KEY (PEM of the client's certificate and its key)"

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
	if path := file("NATS_CREDS"); path != "" {
		options = append(options, nats.UserCredentials(path))
	}
	if path := file("NATS_NKEY"); path != "" {
		option, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("NATS_NKEY: %w", err))
		} else {
			options = append(options, option)
		}
	}
	switch user, password := get("NATS_USER"), get("NATS_PASSWORD"); {
	case user != "":
		options = append(options, nats.UserInfo(user, password))
	case password != "":
		errs = append(errs, errors.New("NATS_PASSWORD is set without NATS_USER: set both"))
	}
	if path := file("NATS_CA"); path != "" {
		options = append(options, nats.RootCAs(path))
	}
	cert, key := file("NATS_CERT"), file("NATS_KEY")
	switch {
	case cert != "" && key != "":
		options = append(options, nats.ClientCert(cert, key))
	case get("NATS_CERT") == "" != (get("NATS_KEY") == ""):
		errs = append(errs, errors.New("NATS_CERT and NATS_KEY go together: set both"))
	}
	return options, errors.Join(errs...)
}
