package nodes

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/setting"
)

// daemonSettings are those of the process; they are not part of what decisions depend on.
type daemonSettings struct {
	Interval    time.Duration
	StopTimeout time.Duration
	HTTP        string
	LogFormat   string
	LogLevel    slog.Level
}

var daemonList = []setting.Setting[daemonSettings]{
	setting.New("TICK_SEC", "60", "from the start of one tick to that of the next, give or take a tenth", setting.Seconds(func(d *daemonSettings) *time.Duration { return &d.Interval })),
	setting.New("STOP_TIMEOUT_SEC", "20", "what a running tick is given to come to an end when the daemon is stopped", setting.Seconds(func(d *daemonSettings) *time.Duration { return &d.StopTimeout })),
	setting.New("HTTP", "127.0.0.1:9808", "address of the console, /metrics, /healthz and /readyz; off for none", setting.Text(func(d *daemonSettings) *string { return &d.HTTP })),
	setting.New("LOG_FORMAT", "text", "text or json", setting.Text(func(d *daemonSettings) *string { return &d.LogFormat })),
	setting.New("LOG_LEVEL", "info", "debug, info, warn or error", func(d *daemonSettings, v string) error {
		if err := d.LogLevel.UnmarshalText([]byte(v)); err != nil {
			return errors.New("write debug, info, warn or error")
		}
		return nil
	}),
}

// DaemonSettings describes the settings of the process, which decisions don't depend on.
func DaemonSettings() connect.Group {
	return connect.Group{Name: "Daemon", Settings: setting.Describe(daemonList)}
}

func parseDaemon(lookup setting.Lookup) (daemonSettings, error) {
	var d daemonSettings
	err := setting.Parse(&d, daemonList, lookup, func(d daemonSettings) []setting.Problem {
		var out []setting.Problem
		check := func(ok bool, name string, value any, fix string) {
			if !ok {
				out = append(out, setting.Problem{Setting: name, Value: fmt.Sprint(value), Fix: fix})
			}
		}
		check(d.Interval >= time.Second, "TICK_SEC", int64(d.Interval/time.Second), "use 1 or more seconds")
		check(d.StopTimeout >= time.Second && d.StopTimeout <= 10*time.Minute, "STOP_TIMEOUT_SEC", int64(d.StopTimeout/time.Second), "use 1 to 600 seconds")
		check(d.LogFormat == "text" || d.LogFormat == "json", "LOG_FORMAT", d.LogFormat, "write text or json")
		if d.HTTP != "off" {
			_, _, err := net.SplitHostPort(d.HTTP)
			check(err == nil, "HTTP", d.HTTP, "write HOST:PORT, for example 127.0.0.1:9808, :9808 for every interface, or off")
		}
		return out
	})
	return d, err
}

func (d daemonSettings) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: d.LogLevel}
	if d.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// holder names this daemon so that the one that is started after a crash takes its predecessor's claims at once. Only one process can
// listen on an address, and serve listens before the daemon runs, so no other process has the name. Without a fixed address there is
// no such name.
func (d daemonSettings) holder() string {
	_, port, err := net.SplitHostPort(d.HTTP)
	if err != nil || port == "" || port == "0" {
		return ""
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host + "/" + d.HTTP
}
