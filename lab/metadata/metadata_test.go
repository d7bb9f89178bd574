package metadata_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/muster-dev/muster/lab/metadata"
)

// ask sends a request from an address and returns the status and the answer.
func ask(s *metadata.Service, method, path, from string, header ...string) (int, string) {
	r := httptest.NewRequest(method, "http://169.254.169.254"+path, nil)
	r.RemoteAddr = from + ":40000"
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestService(t *testing.T) {
	noon := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	machines := map[string]metadata.Instance{
		"10.77.0.11": {ID: "i-1", Zone: "eu-1a", UserData: "#!/bin/bash\n"},
		"10.77.0.12": {ID: "i-2", Zone: "eu-1b", Notices: metadata.Notices{Interruption: noon.Add(2 * time.Minute), Rebalance: noon}},
	}
	s := metadata.New(func(address string) (metadata.Instance, bool) { i, ok := machines[address]; return i, ok })
	const ttl, session = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
	code, token := ask(s, http.MethodPut, "/latest/api/token", "10.77.0.11", ttl, "600")
	if code != http.StatusOK {
		t.Fatalf("no session: %d", code)
	}
	_, second := ask(s, http.MethodPut, "/latest/api/token", "10.77.0.12", ttl, "600")

	for _, test := range []struct {
		name, method, path, from string
		header                   []string
		code                     int
		text                     string
	}{
		{"its ID", http.MethodGet, "/latest/meta-data/instance-id", "10.77.0.11", []string{session, token}, 200, "i-1"},
		{"the ID of another machine", http.MethodGet, "/latest/meta-data/instance-id", "10.77.0.12", []string{session, second}, 200, "i-2"},
		{"user data", http.MethodGet, "/latest/user-data", "10.77.0.11", []string{session, token}, 200, "#!/bin/bash\n"},
		{"none", http.MethodGet, "/latest/user-data", "10.77.0.12", []string{session, second}, 404, ""},
		{"its role", http.MethodGet, "/latest/meta-data/iam/security-credentials/", "10.77.0.11", []string{session, token}, 200, "node"},
		{"a folder, in an earlier version", http.MethodGet, "/2021-03-23/meta-data/placement/", "10.77.0.11", []string{session, token}, 200, "availability-zone\nregion"},
		{"no Spot interruption", http.MethodGet, "/latest/meta-data/spot/instance-action", "10.77.0.11", []string{session, token}, 404, ""},
		{"a Spot interruption", http.MethodGet, "/latest/meta-data/spot/instance-action", "10.77.0.12", []string{session, second}, 200, `{"action":"terminate","time":"2026-11-27T12:02:00Z"}`},
		{"its time", http.MethodGet, "/latest/meta-data/spot/termination-time", "10.77.0.12", []string{session, second}, 200, "2026-11-27T12:02:00Z"},
		{"no rebalance recommendation", http.MethodGet, "/latest/meta-data/events/recommendations/rebalance", "10.77.0.11", []string{session, token}, 404, ""},
		{"a rebalance recommendation", http.MethodGet, "/latest/meta-data/events/recommendations/rebalance", "10.77.0.12", []string{session, second}, 200, `{"noticeTime":"2026-11-27T12:00:00Z"}`},
		{"a folder of folders", http.MethodGet, "/latest/meta-data/iam", "10.77.0.11", []string{session, token}, 200, "security-credentials/"},
		{"a version that never was", http.MethodGet, "/soon/meta-data/instance-id", "10.77.0.11", []string{session, token}, 404, ""},
		{"an unknown path", http.MethodGet, "/latest/meta-data/none", "10.77.0.11", []string{session, token}, 404, ""},
		{"no session, as in version 1", http.MethodGet, "/latest/meta-data/instance-id", "10.77.0.11", nil, 401, ""},
		{"a wrong session", http.MethodGet, "/latest/meta-data/instance-id", "10.77.0.11", []string{session, "x"}, 401, ""},
		{"another machine's session", http.MethodGet, "/latest/meta-data/instance-id", "10.77.0.12", []string{session, token}, 401, ""},
		{"a session without a time", http.MethodPut, "/latest/api/token", "10.77.0.11", nil, 400, ""},
		{"a session of a day", http.MethodPut, "/latest/api/token", "10.77.0.11", []string{ttl, "86400"}, 400, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, text := ask(s, test.method, test.path, test.from, test.header...)
			if code != test.code {
				t.Fatalf("got status %d, want %d", code, test.code)
			}
			if code == 200 && text != test.text {
				t.Errorf("got %q, want %q", text, test.text)
			}
		})
	}
}
