package defender

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/state"
)

// HTTP serves what operators and Kubernetes ask of a defender: /health/live
// (200 while the process runs), /health/ready (200 while it holds its lease or
// waits for an ID as a standby; otherwise it says why its writes are refused, if they
// are), /metrics and /api/v1/status.
func HTTP(w *partition.Worker, reg prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, http.StatusOK, "live") })
	mux.HandleFunc("GET /health/ready", func(rw http.ResponseWriter, _ *http.Request) {
		s := w.Status()
		switch {
		case !s.RefusedSince.IsZero() && s.State != state.Shutdown && time.Since(s.TrustedUntil) > 0:
			writeJSON(rw, http.StatusServiceUnavailable, map[string]string{"status": string(s.State), "reason": s.Refused, "since": s.RefusedSince.UTC().Format(time.RFC3339)})
		case s.State == state.Init, s.State == state.Degraded, s.State == state.Shutdown:
			writeStatus(rw, http.StatusServiceUnavailable, string(s.State))
		default:
			writeStatus(rw, http.StatusOK, string(s.State))
		}
	})
	mux.HandleFunc("GET /api/v1/status", func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, http.StatusOK, w.Status()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

func writeStatus(rw http.ResponseWriter, code int, status string) {
	writeJSON(rw, code, map[string]string{"status": status})
}

func writeJSON(rw http.ResponseWriter, code int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(v)
}
