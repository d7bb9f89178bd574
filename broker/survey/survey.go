// Package survey reads the monitoring endpoints of NATS servers and says which failures
// an installation survives, row by row as docs/durability.md has them.
package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Server is what one server's monitoring endpoint says.
type Server struct {
	Name       string
	Version    string
	Cluster    string // empty: it is alone
	StoreDir   string
	MaxStorage int64
	Storage    uint64
	SyncAlways bool
	Sync       time.Duration // between two syncs, without SyncAlways
	Health     string        // "ok", or what is wrong
	Streams    []Stream      // that it has a copy of
}

// Stream is a stream, or the stream of a bucket, as a server sees it.
type Stream struct {
	Name     string
	Replicas int
	MaxBytes int64 // -1: no limit
	Discard  string
	Bytes    uint64
	Memory   bool   // not on the disk
	Leader   string // a server's name
	Peers    []Peer // the leader's view of the other copies
}

// Peer is another server's copy of a stream.
type Peer struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Lag     uint64 `json:"lag"`
}

// ErrNoURL is the error of an endpoint that is no URL of one.
var ErrNoURL = errors.New("reading the monitoring endpoint: this is no URL of one")

// Read asks a server's monitoring endpoint, such as "http://127.0.0.1:8222".
func Read(ctx context.Context, endpoint string) (Server, error) {
	base, err := url.Parse(strings.TrimRight(endpoint, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return Server{}, fmt.Errorf("%w: %q: give http://HOST:8222", ErrNoURL, endpoint)
	}
	var varz struct {
		Name    string `json:"server_name"`
		Version string `json:"version"`
		Cluster struct {
			Name string `json:"name"`
		} `json:"cluster"`
		JetStream struct {
			Config *struct {
				StoreDir   string        `json:"store_dir"`
				MaxStorage int64         `json:"max_storage"`
				Sync       time.Duration `json:"sync_interval"`
				SyncAlways bool          `json:"sync_always"`
			} `json:"config"`
			Stats struct {
				Storage uint64 `json:"storage"`
			} `json:"stats"`
		} `json:"jetstream"`
	}
	if err := get(ctx, base, "/varz", &varz); err != nil {
		return Server{}, err
	}
	config := varz.JetStream.Config
	if config == nil {
		return Server{}, fmt.Errorf("reading %s: server %s has no JetStream: enable it in its configuration", endpoint, varz.Name)
	}
	s := Server{Name: varz.Name, Version: varz.Version, Cluster: varz.Cluster.Name, StoreDir: config.StoreDir, MaxStorage: config.MaxStorage,
		Storage: varz.JetStream.Stats.Storage, SyncAlways: config.SyncAlways, Sync: config.Sync}
	var health struct {
		Status string `json:"status"`
		Error  string `json:"error"`
	}
	if err := get(ctx, base, "/healthz", &health); err != nil {
		return Server{}, err
	}
	s.Health = health.Status
	if health.Error != "" {
		s.Health = health.Error
	}
	s.Streams, err = streams(ctx, base)
	return s, err
}

func streams(ctx context.Context, base *url.URL) ([]Stream, error) {
	var jsz struct {
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster struct {
					Leader   string `json:"leader"`
					Replicas []Peer `json:"replicas"`
				} `json:"cluster"`
				Config struct {
					Replicas int    `json:"num_replicas"`
					MaxBytes int64  `json:"max_bytes"`
					Discard  string `json:"discard"`
					Storage  string `json:"storage"`
				} `json:"config"`
				State struct {
					Bytes uint64 `json:"bytes"`
				} `json:"state"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := get(ctx, base, "/jsz?streams=true&config=true&limit=1024", &jsz); err != nil {
		return nil, err
	}
	var all []Stream
	for _, a := range jsz.Accounts {
		for _, d := range a.Streams {
			all = append(all, Stream{Name: d.Name, Replicas: d.Config.Replicas, MaxBytes: d.Config.MaxBytes, Discard: d.Config.Discard, Bytes: d.State.Bytes,
				Memory: d.Config.Storage == "memory", Leader: d.Cluster.Leader, Peers: d.Cluster.Replicas})
		}
	}
	return all, nil
}

// timeout bounds one request.
const timeout = 5 * time.Second

// get decodes what an endpoint says. A server that is not healthy answers /healthz with
// 503 and says why.
func get(ctx context.Context, base *url.URL, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String()+path, nil)
	if err != nil {
		return fmt.Errorf("reading the monitoring endpoint: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("reading the monitoring endpoint: %w: start the server with http_port (or -m 8222), and give its address with --monitor", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK && path != "/healthz" {
		return fmt.Errorf("reading the monitoring endpoint: %s%s answers %s: give the address of a NATS server's http_port with --monitor", base, path, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the monitoring endpoint: %s%s: %w: give the address of a NATS server's http_port with --monitor", base, path, err)
	}
	return nil
}

// merged returns each stream once, as its leader sees it if the leader was asked.
func merged(servers []Server) []Stream {
	by := map[string]Stream{}
	for _, s := range servers {
		for _, st := range s.Streams {
			if _, have := by[st.Name]; !have || st.Leader == s.Name {
				by[st.Name] = st
			}
		}
	}
	var all []Stream
	for _, st := range by {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
	return all
}
