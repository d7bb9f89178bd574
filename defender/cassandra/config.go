package cassandra

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster/setting"
)

// options is what the settings say; files are read when a Config is made of them.
type options struct {
	Config
	passwordFile, caFile string
}

var settings = []setting.Setting[options]{
	setting.New("CASSANDRA_HOSTS", "", "some Cassandra nodes, host or host:port, separated by commas", setting.List(func(o *options) *[]string { return &o.Hosts })),
	setting.New("CASSANDRA_KEYSPACE", "muster", "keyspace of T-charts and U-charts", setting.Text(func(o *options) *string { return &o.Keyspace })),
	setting.New("CASSANDRA_DATACENTER", "", "the local datacenter; needed where there are several", setting.Text(func(o *options) *string { return &o.Datacenter })),
	setting.New("CASSANDRA_USERNAME", "", "role to log in as", setting.Text(func(o *options) *string { return &o.Username })),
	setting.New("CASSANDRA_PASSWORD_FILE", "", "file with its password", setting.Text(func(o *options) *string { return &o.passwordFile })),
	setting.New("CASSANDRA_CA_FILE", "", "file with the PEM of the CA that signed the nodes' certificates; with it connections are encrypted", setting.Text(func(o *options) *string { return &o.caFile })),
	setting.New("CASSANDRA_TIMEOUT_SEC", "10", "most time for one request", setting.Seconds(func(o *options) *time.Duration { return &o.Timeout })),
}

// Settings lists every setting in the order in which documentation shows them.
func Settings() []setting.Info { return setting.Describe(settings) }

// ConfigFromEnv reads the settings from the environment that lookup stands for, and the files that they name. The error is a
// *setting.Error that lists everything that is wrong. Without CASSANDRA_HOSTS there is no Cassandra: used is false.
func ConfigFromEnv(lookup setting.Lookup) (c Config, used bool, err error) {
	var o options
	err = setting.Parse(&o, settings, lookup, options.problems)
	if err != nil {
		return Config{}, len(o.Hosts) > 0, err
	}
	if err := o.read(); err != nil {
		return Config{}, len(o.Hosts) > 0, err
	}
	return o.Config, len(o.Hosts) > 0, nil
}

func (o options) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	check(keyspaceName.MatchString(o.Keyspace), "CASSANDRA_KEYSPACE", o.Keyspace, "use up to 48 lower-case letters, digits and underscores, beginning with a letter")
	check(o.Timeout > 0, "CASSANDRA_TIMEOUT_SEC", fmt.Sprint(int64(o.Timeout/time.Second)), "use a whole number of seconds above 0")
	check((o.Username == "") == (o.passwordFile == ""), "CASSANDRA_PASSWORD_FILE", o.passwordFile, "set both CASSANDRA_USERNAME and CASSANDRA_PASSWORD_FILE, or neither")
	return out
}

// read reads the files that the settings name.
func (o *options) read() error {
	var out []setting.Problem
	if o.passwordFile != "" {
		b, err := os.ReadFile(o.passwordFile)
		if o.Password = strings.TrimRight(string(b), "\r\n"); err == nil && o.Password == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			out = append(out, setting.Problem{Setting: "CASSANDRA_PASSWORD_FILE", Value: o.passwordFile, Fix: "name a file with the password: " + err.Error()})
		}
	}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = errors.New("no certificate is in it")
		}
		if err != nil {
			out = append(out, setting.Problem{Setting: "CASSANDRA_CA_FILE", Value: o.caFile, Fix: "name a PEM file: " + err.Error()})
		}
		o.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return setting.Problems(out, nil)
}
