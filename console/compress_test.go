package console

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCompression: what the console answers is compressed for clients that take gzip, and is the same for the others.
func TestCompression(t *testing.T) {
	c, s := serve(t, Options{})
	get := func(t *testing.T, path, accept string) (*http.Response, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", accept) // also "": the client would ask for gzip and hide it
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, b
	}
	for _, path := range []string{"/", "/app.js", "/style.css", "/api/events"} {
		t.Run("of "+path, func(t *testing.T) {
			plainRes, plain := get(t, path, "br, gzip;q=0")
			if e := plainRes.Header.Get("Content-Encoding"); e != "" {
				t.Errorf("a client that refuses gzip gets %q", e)
			}
			res, packed := get(t, path, "br, gzip")
			if e := res.Header.Get("Content-Encoding"); e != "gzip" {
				t.Fatalf("a client that takes gzip gets %q", e)
			}
			if got, want := res.Header.Get("Content-Type"), plainRes.Header.Get("Content-Type"); got != want {
				t.Errorf("it is %q compressed, %q otherwise", got, want)
			}
			if got := unpacked(t, packed); got != string(plain) {
				t.Errorf("%d bytes compressed, %d otherwise, and not the same", len(got), len(plain))
			}
		})
	}
	t.Run("not of an answer without a body", func(t *testing.T) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		compressed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })).ServeHTTP(w, r)
		if w.Code != http.StatusNoContent || w.Body.Len() > 0 || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("status %d with %d bytes of coding %q", w.Code, w.Body.Len(), w.Header().Get("Content-Encoding"))
		}
	})
	t.Run("a frame of the stream comes at once", func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r) // takes gzip, and unpacks what comes
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if !res.Uncompressed {
			t.Error("the stream is not compressed")
		}
		c.Say(Moment{Plane: "nodes", Kind: "k", Text: "the first moment"})
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "the first moment") {
				return
			}
		}
		t.Errorf("the stream ended: %v", lines.Err())
	})
}

func unpacked(t *testing.T, b []byte) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
