package partition

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
)

// BenchmarkRead measures what the shell does with a message before the delivery has it: where it
// comes from, which key it is of, and as what it was published.
func BenchmarkRead(b *testing.B) {
	cfg := Config{Name: "defender", Stream: "dc", Subject: "dc.*.*.completion", Slots: 512, Logger: slog.New(slog.DiscardHandler)}
	lay, err := cfg.resolve().validate()
	if err != nil {
		b.Fatal(err)
	}
	p := &puller{cfg: cfg, layout: lay, inbox: "_INBOX.abc"}
	msg := &nats.Msg{
		Subject: "defender.slot.17.17.529.1553.tool001.chamber1",
		Reply:   "$JS.ACK.dc.defender-l1-0017.1.123456.789.1790000000000000000.1000",
		Header:  nats.Header{"Nats-Pin-Id": []string{"pin"}},
		Data:    []byte("a message"),
		Sub:     &nats.Subscription{},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, m := p.read(msg); m.unreadable {
			b.Fatal("it can't be read")
		}
	}
}
