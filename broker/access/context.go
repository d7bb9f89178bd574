package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// contextScheme begins a URL that names a context of the nats command, and no server.
const contextScheme = "context:"

// ContextURL returns the URL by which [Connect] connects as a context of the nats command says.
func ContextURL(name string) string { return contextScheme + name }

// natsContext is what the nats command keeps about a way to connect (ADR-21 of NATS' architecture).
type natsContext struct {
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"`
	Nkey        string `json:"nkey"`
	CA          string `json:"ca"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	InboxPrefix string `json:"inbox_prefix"`
}

// withoutEffect are a context's fields that change nothing about the connection.
var withoutEffect = []string{"description", "color_scheme", "jetstream_event_prefix"}

// resolve returns the servers and the lookup of a URL: for the name of a context those of the context, where a variable that is set
// comes first, and otherwise what was given.
func resolve(url string, lookup func(string) (string, bool)) (string, func(string) (string, bool), []nats.Option, error) {
	name, ok := strings.CutPrefix(url, contextScheme)
	if !ok {
		return url, lookup, nil, nil
	}
	c, err := readContext(name)
	if err != nil {
		return "", nil, nil, fmt.Errorf("reading the NATS context %q: %w", name, err)
	}

	values := c.variables()
	var more []nats.Option
	if c.Token != "" {
		more = append(more, nats.Token(c.Token))
	}
	// Who connects is one decision: a user of the environment must not come with the context's credentials.
	if named(lookup) {
		more = nil
		for _, v := range []string{varUser, varPassword, varCreds, varNkey, varInboxPrefix} {
			delete(values, v)
		}
	}
	return c.servers(), func(variable string) (string, bool) {
		if v, ok := lookup(variable); ok && v != "" {
			return v, true
		}
		v, ok := values[variable]
		return v, ok
	}, more, nil
}

// named reports whether the variables say who connects.
func named(lookup func(string) (string, bool)) bool {
	return slices.ContainsFunc([]string{varUser, varCreds, varNkey}, func(name string) bool {
		v, _ := lookup(name)
		return v != ""
	})
}

func (c natsContext) servers() string {
	if c.URL == "" {
		return nats.DefaultURL
	}
	return c.URL
}

// variables are those that say the same as the context.
func (c natsContext) variables() map[string]string {
	values := map[string]string{}
	for variable, v := range map[string]string{
		varUser: c.User, varPassword: c.Password, varCreds: fromHome(c.Creds), varNkey: fromHome(c.Nkey), varInboxPrefix: c.InboxPrefix,
		varCA: fromHome(c.CA), varCert: fromHome(c.Cert), varKey: fromHome(c.Key),
	} {
		if v != "" {
			values[variable] = v
		}
	}
	return values
}

// readContext reads a context's file. A field that this package doesn't follow is an error: without it, the connection would be
// another one than the nats command makes.
func readContext(name string) (c natsContext, err error) {
	if name == "" || name != filepath.Base(name) || name == ".." {
		return c, errors.New("that is no name: give one that `nats context ls` lists")
	}
	dir, err := contextDir()
	if err != nil {
		return c, err
	}
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%w: there are %s", err, contextNames(dir))
	}
	if err != nil {
		return c, err
	}

	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return c, fmt.Errorf("%w: write it again with `nats context edit`", err)
	}
	for _, field := range withoutEffect {
		delete(all, field)
	}
	for field, v := range all { // unset ones are written, too
		if v == nil || v == "" || v == false {
			delete(all, field)
		}
	}
	if data, err = json.Marshal(all); err != nil {
		return c, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("%w: Muster doesn't follow it; use --nats, and the variables for the rest", err)
	}
	return c, nil
}

// contextDir is where the nats command keeps its contexts, on every system.
func contextDir() (string, error) {
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the contexts: %w: set XDG_CONFIG_HOME", err)
		}
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "nats", "context"), nil
}

// contextNames names the contexts that there are, for an error.
func contextNames(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // of a pattern without fault
	if len(files) == 0 {
		return "none; make one with `nats context add`"
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	return strings.Join(names, ", ")
}

// fromHome returns a path with the home directory for a leading ~, as the nats command reads it.
func fromHome(path string) string {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return filepath.Join(home, rest)
}
