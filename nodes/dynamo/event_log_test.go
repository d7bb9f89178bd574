package dynamo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
)

// large returns an event that needs several items.
func large(t *testing.T, seq int) nodes.Event {
	t.Helper()
	b := make([]byte, 500_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return nodes.Event{At: start, Tick: "t", Seq: seq, Kind: "decided", ActionID: "a", Message: strings.Repeat("long ", 200), Data: raw}
}

// items returns everything in the table of the journal.
func (b *backend) items(t *testing.T, d *DB) []item {
	t.Helper()
	var out []item
	in := &dynamodb.ScanInput{TableName: &b.cfg.LogsTable}
	for {
		res, err := d.api.Scan(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, res.Items...)
		if in.ExclusiveStartKey = res.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return out
		}
	}
}

func readAll(t *testing.T, j *EventLog, q nodes.Query) (events []nodes.Event, err error) {
	t.Helper()
	for e, err := range j.Read(t.Context(), q) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

func TestASmallEventIsAnItemThatPeopleCanRead(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	e := nodes.Event{At: start, Tick: "tick1", Seq: 3, Kind: "scaleUp.launched", ActionID: "up", Instance: "i-1", Message: "launched", Data: json.RawMessage(`{ "n": 1 }`)}
	if err := d.EventLog().Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for _, it := range b.items(t, d) {
		if textOf(it, "kind") == "" {
			continue
		}
		for name, want := range map[string]string{"pk": "journal#cluster#2024-10-27", "sk": "1730000000000#tick1#0003", "kind": "scaleUp.launched",
			"actionId": "up", "instance": "i-1", "message": "launched", "data": `{"n":1}`} {
			if textOf(it, name) != want {
				t.Errorf("%s is %q, want %q", name, textOf(it, name), want)
			}
		}
		return
	}
	t.Error("there is no such item")
}

func TestEventsExpireWithEverythingThatBelongsToThem(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	now := time.Now()
	b.cfg.KeepDays, b.cfg.Now = 7, func() time.Time { return now }
	d := b.open(t, nil)
	j := d.EventLog()
	e := large(t, 1)
	e.At = now
	for _, e := range []nodes.Event{{At: now, Tick: "t"}, e} {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	var event int64
	kinds := map[string]int64{}
	for _, it := range b.items(t, d) {
		at, ok := countOf(it, expiryAttribute)
		if !ok {
			t.Fatalf("%v never expires", textOf(it, "pk"))
		}
		kind, _, _ := strings.Cut(textOf(it, keyAttribute), "#")
		kinds[kind] = at
	}
	event = now.AddDate(0, 0, 7).Unix()
	if kinds["journal"] != event || kinds["parts"] <= event || kinds["days"] <= event+24*3600 {
		t.Errorf("events expire at %d, want %d; parts and days later: %v", kinds["journal"], event, kinds)
	}
	now = now.AddDate(0, 0, 8)
	if got, err := readAll(t, j, nodes.Query{}); err != nil || len(got) > 0 {
		t.Errorf("after that %d events, %v", len(got), err)
	}
	// An event log that goes on mentions its days again.
	if err := j.Append(t.Context(), nodes.Event{At: now, Tick: "t"}); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, b.open(t, nil).EventLog(), nodes.Query{}); err != nil || len(got) != 1 {
		t.Errorf("then %d events, %v", len(got), err)
	}
}

func TestADamagedEventIsNamedByItsKey(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	j := d.EventLog()
	small, big := nodes.Event{At: start, Tick: "t", Seq: 1, Kind: "k", Data: json.RawMessage(`1`)}, large(t, 2)
	packed := nodes.Event{At: start, Tick: "t", Seq: 3, Kind: "k", Message: strings.Repeat("x", 2*plainEvent)}
	for _, e := range []nodes.Event{small, big, packed} {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	whole := b.items(t, d)
	restore := func() {
		for _, it := range whole {
			b.put(t, d, it)
		}
	}
	find := func(prefix, sk string) item {
		for _, it := range whole {
			if strings.HasPrefix(textOf(it, keyAttribute), prefix) && textOf(it, sortAttribute) == sk {
				return maps.Clone(it)
			}
		}
		t.Fatalf("no item %s %s", prefix, sk)
		return nil
	}
	change := func(prefix, sk, name string, v types.AttributeValue) func() {
		return func() {
			it := find(prefix, sk)
			if it[name] = v; v == nil {
				delete(it, name)
			}
			b.put(t, d, it)
		}
	}
	remove := func(prefix, sk string) func() {
		return func() {
			it := find(prefix, sk)
			_, err := d.api.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &b.cfg.LogsTable,
				Key: item{keyAttribute: it[keyAttribute], sortAttribute: it[sortAttribute]}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	bytes := func(s string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(s)} }
	for name, c := range map[string]struct {
		damage func()
		key    string
		why    string
	}{
		"its first part is gone":         {remove("parts#", "000000"), big.Key(), "part 0 of"},
		"its last part is gone":          {remove("parts#", "000001"), big.Key(), "1 of its 2 parts"},
		"a part has other bytes":         {change("parts#", "000001", "packed", bytes("other")), big.Key(), "checksum"},
		"a part has no bytes":            {change("parts#", "000001", "packed", text("x")), big.Key(), "part 1 of 2"},
		"it does not say how many parts": {change("journal#", big.Key(), "parts", nil), big.Key(), "2 of its 0 parts"},
		"its checksum is another":        {change("journal#", packed.Key(), "sha256", text("00")), packed.Key(), "checksum"},
		"its time can't be read":         {change("journal#", small.Key(), "at", text("noon")), small.Key(), `"noon"`},
		"it has no seq":                  {change("journal#", small.Key(), "seq", text("1")), small.Key(), "no seq"},
		"its data is no JSON":            {change("journal#", small.Key(), "data", text("{")), small.Key(), "no JSON"},
		"it is another event":            {change("journal#", small.Key(), "seq", n("9")), small.Key(), "#0009"},
	} {
		t.Run(name, func(t *testing.T) {
			restore()
			c.damage()
			_, err := readAll(t, j, nodes.Query{})
			var ce *CorruptError
			if !errors.As(err, &ce) || ce.Key != c.key || !strings.Contains(ce.Why, c.why) {
				t.Errorf("got %v, want event %s and %q", err, c.key, c.why)
			}
		})
	}
	restore()
	if got, err := readAll(t, j, nodes.Query{}); err != nil || len(got) != 3 {
		t.Errorf("restored: %d events, %v", len(got), err)
	}
}

// TestACrashWithinALargeAppendLeavesNoHalfEvent stops an append before each of its requests; appended again, the event is whole.
func TestACrashWithinALargeAppendLeavesNoHalfEvent(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	whole := b.open(t, nil)
	for at := 0; ; at++ {
		e, requests, crashed := large(t, at), 0, false
		d := b.open(t, func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if requests++; requests > at {
				crashed = true
				return refuse(400, "AccessDeniedException", "crashed")
			}
			return send()
		})
		if err := d.EventLog().Append(t.Context(), e); (err != nil) != crashed {
			t.Fatalf("crash at request %d: %v", at, err)
		}
		got, err := readAll(t, whole.EventLog(), nodes.Query{})
		if err != nil || crashed && len(got) != at {
			t.Fatalf("crash at request %d: %d events, %v", at, len(got), err)
		}
		if !crashed {
			if at < 4 {
				t.Errorf("%d requests: too few for a day, two parts and an item", at)
			}
			return
		}
		if err := whole.EventLog().Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLastFewEventsAreReadWithFewRequests(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	j := d.EventLog()
	for k := range 60 {
		e := nodes.Event{At: start.Add(time.Duration(k) * 24 * time.Hour), Tick: "t", Seq: k, Kind: fmt.Sprint("k", k%2)}
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	requests := 0
	count := b.open(t, func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		requests++
		return send()
	})
	for _, c := range []struct {
		q     nodes.Query
		most  int
		wants int
	}{
		{nodes.Query{Limit: 3}, 1 + 2*3, 3},
		{nodes.Query{Since: start.Add(57 * 24 * time.Hour)}, 1 + 3, 3},
		{nodes.Query{Kind: "k1", Until: start.Add(48 * time.Hour)}, 1 + 3, 1},
	} {
		requests = 0
		got, err := readAll(t, count.EventLog(), c.q)
		if err != nil || len(got) != c.wants || requests > c.most {
			t.Errorf("%+v: %d events by %d requests, want %d by at most %d, %v", c.q, len(got), requests, c.wants, c.most, err)
		}
	}
}
