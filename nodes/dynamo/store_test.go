package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
)

func (b *backend) put(t *testing.T, d *DB, it item) {
	t.Helper()
	table := b.cfg.StateTable
	if it[sortAttribute] != nil {
		table = b.cfg.LogsTable
	}
	if _, err := d.api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it}); err != nil {
		t.Fatal(err)
	}
}

func (b *backend) read(t *testing.T, d *DB, key string) item {
	t.Helper()
	it, err := d.Store().get(t.Context(), "reading", key)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func n(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

func list(texts ...string) types.AttributeValue {
	l := &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
	for _, s := range texts {
		l.Value = append(l.Value, text(s))
	}
	return l
}

func yes(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

// specified are the examples of the record's specification, as the items that another program would have written.
var specified = map[string]item{
	"idle": {"pk": text("cluster"), "scalingInProgress": yes(false), "lastScaleEpoch": n("1730000000"), "pendingSinceEpoch": n("0"),
		"idleSinceEpoch": n("1730000100"), "workerCount": n("2")},
	"scale-up in progress": {"pk": text("cluster"), "scalingInProgress": yes(true), "lastScaleEpoch": n("1730000000"),
		"scaleUpActionId": text("1730000300-req-xyz"), "scaleUpStartedEpoch": n("1730000300"), "scaleUpRequested": n("2"),
		"scaleUpInstanceIds": list("i-aaa", "i-bbb")},
	"scale-up just begun": {"pk": text("cluster"), "scalingInProgress": yes(true), "lastScaleEpoch": n("0"), "scaleUpActionId": text("a"),
		"scaleUpStartedEpoch": n("1"), "scaleUpRequested": n("2"), "scaleUpInstanceIds": list()},
	"scale-down in progress": {"pk": text("cluster"), "scalingInProgress": yes(true), "lastScaleEpoch": n("1"), "scaleDownActionId": text("d"),
		"scaleDownStartedEpoch": n("2"), "scaleDownPhase": text("TERMINATING"), "scaleDownTargetInstanceIds": list("i-a", "i-b"),
		"scaleDownCompletedInstanceIds": list("i-a")},
}

func TestSpecifiedItemsSurviveBeingReadAndWritten(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		b := fresh(t, c)
		d := b.open(t, nil)
		for name, it := range specified {
			t.Run(name, func(t *testing.T) {
				it := maps.Clone(it)
				it["madeBy"] = &types.AttributeValueMemberM{Value: item{"team": text("others"), "sizes": &types.AttributeValueMemberNS{Value: []string{"1"}}}}
				it["Revision"] = text("not ours")
				b.put(t, d, it)
				r, err := d.Store().Load(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				again, err := encode(r)
				if err != nil {
					t.Fatal(err)
				}
				for name, want := range again {
					if !reflect.DeepEqual(it[name], want) {
						t.Errorf("%s: read %v, it would be written as %v", name, it[name], want)
					}
				}
				held, err := d.Store().Apply(t.Context(), nodes.AcquireLease{Owner: "me", Now: start, TTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.Store().Apply(t.Context(), nodes.ReleaseLease{Owner: "me", Fence: held.LeaseFence}); err != nil {
					t.Fatal(err)
				}
				got := b.read(t, d, "cluster")
				for _, ours := range []string{"leaseFence", "revision"} {
					delete(got, ours)
				}
				if !reflect.DeepEqual(got, it) {
					t.Errorf("got  %v\nwant %v", got, it)
				}
			})
		}
	})
}

func TestAnActionThatAnotherProgramLeftIsCarriedOn(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		b := fresh(t, c)
		d := b.open(t, nil)
		it := maps.Clone(specified["scale-down in progress"])
		it["scaleDownCompletedInstanceIds"] = &types.AttributeValueMemberSS{Value: []string{"i-a"}} // a set is as good as a list
		b.put(t, d, it)
		s := d.Store()
		r, err := s.Apply(t.Context(), nodes.AcquireLease{Owner: "me", Now: start, TTL: time.Minute})
		if err != nil || !r.Targets("i-b") || r.Targets("i-a") {
			t.Fatalf("got %+v, %v", r, err)
		}
		if _, err := s.Apply(t.Context(), nodes.MarkScaleDownInstanceDone{Fence: r.LeaseFence, ActionID: "d", InstanceID: "i-b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), nodes.CompleteScaleDown{Fence: r.LeaseFence, ActionID: "d", Now: start}); err != nil {
			t.Fatal(err)
		}
		for name := range b.read(t, d, "cluster") {
			if strings.HasPrefix(name, "scaleDown") {
				t.Errorf("%s is still there", name)
			}
		}
	})
}

// TestAnotherProgramsWriteIsNotOverwritten lets a program that knows of no revision begin an action between our read and our write.
func TestAnotherProgramsWriteIsNotOverwritten(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		b := fresh(t, c)
		other := b.open(t, nil)
		b.put(t, other, specified["idle"])
		wrote := false
		d := b.open(t, func(op string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if op == "UpdateItem" && !wrote {
				wrote = true
				b.put(t, other, specified["scale-up in progress"])
			}
			return send()
		})
		_, err := d.Store().Apply(t.Context(), nodes.BeginScaleDown{ActionID: "down", Now: start, Targets: []string{"i-1"}})
		if !errors.Is(err, nodes.ErrScalingInProgress) {
			t.Errorf("got %v", err)
		}
		if got := b.read(t, other, "cluster"); !reflect.DeepEqual(got, specified["scale-up in progress"]) {
			t.Errorf("its item became %v", got)
		}
	})
}

func TestARecordOfANewerSchemaIsRefused(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	newer := item{"pk": text("cluster"), "schemaVersion": n(fmt.Sprint(nodes.SchemaVersion + 1)), "scalingInProgress": text("as never before")}
	b.put(t, d, newer)
	if _, err := d.Store().Load(t.Context()); !errors.Is(err, nodes.ErrSchemaTooNew) {
		t.Errorf("Load: %v", err)
	}
	_, err := d.Store().Apply(t.Context(), nodes.AcquireLease{Owner: "me", Now: start, TTL: time.Minute})
	if !nodes.IsRefused(err) || !errors.Is(err, nodes.ErrSchemaTooNew) {
		t.Errorf("Apply: %v", err)
	}
	if got := b.read(t, d, "cluster"); !reflect.DeepEqual(got, newer) {
		t.Errorf("it became %v", got)
	}
}

func TestADamagedItemIsNamedWithItsAttribute(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	for attribute, v := range map[string]types.AttributeValue{
		"lastScaleEpoch":     text("yesterday"),
		"scalingInProgress":  n("1"),
		"scaleUpInstanceIds": text("i-1"),
		"workerCount":        n("1.5"),
		"leaseFence":         n("1E30"),
		"removals":           list("i-1"),
		"scaleUpIntent":      &types.AttributeValueMemberBS{Value: [][]byte{{1}}},
	} {
		it := maps.Clone(specified["idle"])
		it[attribute] = v
		b.put(t, d, it)
		_, err := d.Store().Load(t.Context())
		var ie *ItemError
		if !errors.As(err, &ie) || !strings.Contains(ie.Why, attribute) || ie.Key != "cluster" {
			t.Errorf("%s: got %v", attribute, err)
		}
		if _, err := d.Store().Apply(t.Context(), nodes.AcquireLease{Owner: "me", Now: start}); !errors.As(err, &ie) {
			t.Errorf("%s: Apply says %v", attribute, err)
		}
	}
}

func TestAnItemThatGrowsTooLargeIsRefusedBeforeItIsSent(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	r, err := d.Store().Apply(t.Context(), nodes.AcquireLease{Owner: "me", Now: start, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for k := range 20_000 {
		targets = append(targets, fmt.Sprintf("i-%019d", k))
	}
	_, err = d.Store().Apply(t.Context(), nodes.BeginScaleDown{Fence: r.LeaseFence, ActionID: "down", Now: start, Targets: targets})
	var large *ItemTooLargeError
	if !errors.As(err, &large) || large.Attribute != "scaleDownTargetInstanceIds" || large.Bytes < maxItem {
		t.Errorf("got %v", err)
	}
	if now, err := d.Store().Load(t.Context()); err != nil || now.Revision != r.Revision {
		t.Errorf("afterwards revision %d, %v", now.Revision, err)
	}
	// What DynamoDB refuses by its own count is the same error.
	it := item{"pk": text("big"), "a": text(strings.Repeat("x", maxItem))}
	if _, err := d.api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.cfg.StateTable, Item: it}); !tooLarge(err) {
		t.Errorf("an item over the limit: %v", err)
	}
}

// TestSizesAreCountedAsDynamoDBCountsThem finds the largest item that the server takes and compares.
func TestSizesAreCountedAsDynamoDBCountsThem(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	base := item{"pk": text("k"), "l": list("i-1", "i-2"), "m": &types.AttributeValueMemberM{Value: item{"a": yes(true)}}, "n": n("123"), "fill": text("")}
	used, _ := size(base)
	put := func(fill int) error {
		it := maps.Clone(base)
		it["fill"] = text(strings.Repeat("x", fill))
		_, err := d.api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.cfg.StateTable, Item: it})
		return err
	}
	const slack = 8 // numbers are counted generously
	if err := put(maxItem - used - slack); err != nil {
		t.Errorf("an item of the limit less %d bytes: %v", slack, err)
	}
	if err := put(maxItem - used + slack); !tooLarge(err) {
		t.Errorf("an item of the limit and %d bytes more: %v", slack, err)
	}
}

func TestNothingIsSentAfterTheDeadline(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	now := start
	b.cfg.Now = func() time.Time { return now }
	ctx := stopped{t.Context(), start.Add(15 * time.Second)}
	t.Run("by a client that was stopped before it wrote", func(t *testing.T) {
		var sent []string
		d := b.open(t, func(op string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			sent = append(sent, op)
			if op == "GetItem" {
				now = start.Add(time.Minute) // the process stands still here
			}
			return send()
		})
		_, err := d.Store().Apply(ctx, nodes.AcquireLease{Owner: "me", Now: start, TTL: time.Minute})
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(sent, []string{"GetItem"}) {
			t.Errorf("it sent %v: %v", sent, err)
		}
	})
	t.Run("by the client's own retries", func(t *testing.T) {
		now = start
		sent := 0
		d := b.open(t, func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) {
			sent++
			now = start.Add(time.Minute)
			return refuse(500, "InternalServerError", "try again")
		})
		_, err := d.Store().Load(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || sent != 1 {
			t.Errorf("it sent %d requests: %v", sent, err)
		}
	})
	t.Run("by an event log", func(t *testing.T) {
		now = start.Add(time.Minute)
		d := b.open(t, func(op string, _ *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			t.Errorf("it sent %s", op)
			return refuse(500, "InternalServerError", "")
		})
		if err := d.EventLog().Append(ctx, nodes.Event{At: start}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// stopped is a context whose deadline is there to be read but whose timer has not fired, as in a process that has just gone on.
type stopped struct {
	context.Context
	deadline time.Time
}

func (s stopped) Deadline() (time.Time, bool) { return s.deadline, true }

func TestRefusalsAreToldInPlainWordsWithTheFix(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	for code, want := range map[string][]string{
		"ProvisionedThroughputExceededException": {"slow down", "capacity"},
		"ThrottlingException":                    {"slow down"},
		"ResourceNotFoundException":              {"does not exist in eu-central-1", "STATE_TABLE", "--create-tables"},
		"AccessDeniedException":                  {"allow dynamodb:GetItem on table " + b.cfg.StateTable},
		"ExpiredTokenException":                  {"credentials", "renew"},
		"UnrecognizedClientException":            {"credentials"},
		"InternalServerError":                    {"fault of its own"},
		"SomethingNewException":                  {"SomethingNewException: the message"},
	} {
		d := b.open(t, func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return refuse(400, code, "the message")
		})
		_, err := d.Store().Load(t.Context())
		var e *Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: got %v", code, err)
			continue
		}
		for _, part := range append(want, "reading the record in table "+b.cfg.StateTable) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", code, err, part)
			}
		}
	}
	gone := &backend{addr: "127.0.0.1:1", cfg: b.cfg}
	if _, err := gone.open(t, nil).Store().Load(t.Context()); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("nobody there: %v", err)
	}
	missing := &backend{addr: b.addr, cfg: Config{StateTable: "no-such-table", LogsTable: "nor-this", KeepDays: 1}}
	if err := missing.open(t, nil).EventLog().Append(t.Context(), nodes.Event{At: start}); err == nil || !strings.Contains(err.Error(), "nor-this: the table does not exist") {
		t.Errorf("no table: %v", err)
	}
}

// ---- interruptions

func opening(id string, kind nodes.InterruptionKind) nodes.OpenInterruption {
	return nodes.OpenInterruption{Event: nodes.InterruptionEvent{ID: "e-" + id, Kind: kind, InstanceID: id, At: start}, Now: start}
}

var closing = nodes.InterruptionStep{Step: "close", Change: func(i *nodes.Interruption) { i.Closed, i.Outcome = true, "done" }}

// openIDs returns the instances whose interruptions are listed as open.
func openIDs(t *testing.T, s *Store) []string {
	t.Helper()
	list, err := s.OpenInterruptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, i := range list {
		ids = append(ids, i.InstanceID)
	}
	return ids
}

// TestEveryInterleavingOfClosingAndReopeningKeepsAnOpenInterruptionListed stops the process that closes an interruption before each
// of its requests and lets another open it again with a more urgent event meanwhile; and the other way round. An interruption whose
// item is open has to be listed in every case.
func TestEveryInterleavingOfClosingAndReopeningKeepsAnOpenInterruptionListed(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		b := fresh(t, c)
		plain := b.open(t, nil).Store()
		apply := func(s *Store, id string, tr nodes.InterruptionTransition) {
			t.Helper()
			if _, err := s.ApplyInterruption(t.Context(), id, tr); err != nil {
				t.Fatal(err)
			}
		}
		cases := 0
		for _, first := range []nodes.InterruptionTransition{closing, opening("", nodes.Warning)} {
			for at := 0; ; at++ {
				id := fmt.Sprintf("i-%d", cases)
				reopen := opening(id, nodes.Warning)
				apply(plain, id, opening(id, nodes.Rebalance))
				slow, other := first, nodes.InterruptionTransition(reopen)
				if slow.Name() == reopen.Name() {
					apply(plain, id, closing)
					slow, other = reopen, opening(id, nodes.Health)
				}
				requests, met := 0, false
				s := b.open(t, func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
					if requests == at && !met {
						met = true
						apply(plain, id, other)
						if slow.Name() == reopen.Name() {
							apply(plain, id, closing)
						}
					}
					requests++
					return send()
				}).Store()
				apply(s, id, slow)
				i, err := plain.interruption(id, b.read(t, plain.DB, plain.interruptionKey(id)))
				if err != nil {
					t.Fatal(err)
				}
				if listed := slices.Contains(openIDs(t, plain), id); listed != !i.Closed {
					t.Errorf("%s met at request %d: closed is %v, listed as open %v", slow.Name(), at, i.Closed, listed)
				}
				cases++
				if !met {
					break
				}
			}
		}
		t.Logf("%d interleavings", cases)
	})
}

func TestACrashAtAnyRequestLosesNoInterruptionAndItsLeftoversAreTidiedUp(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		b := fresh(t, c)
		now := start
		b.cfg.Now = func() time.Time { return now }
		plain := b.open(t, nil).Store()
		var opened []string
		for at, k := 0, 0; ; at++ {
			id, requests, crashed := fmt.Sprintf("i-%d", k), 0, false
			k++
			s := b.open(t, func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
				if requests++; requests > at {
					crashed = true
					return refuse(400, "AccessDeniedException", "crashed")
				}
				return send()
			}).Store()
			_, acked := s.ApplyInterruption(t.Context(), id, opening(id, nodes.Warning))
			_, _ = s.ApplyInterruption(t.Context(), id, closing)
			raw := b.read(t, plain.DB, plain.interruptionKey(id))
			i, err := plain.interruption(id, raw)
			if err != nil || acked == nil && raw == nil {
				t.Errorf("crash at request %d: acknowledged and lost, %v", at, err)
			}
			if raw != nil && !i.Closed { // whether the opener was told or not: a redelivered event would find it open
				opened = append(opened, id)
			}
			if !crashed {
				break
			}
		}
		if got := openIDs(t, plain); !slices.Equal(got, opened) {
			t.Errorf("open are %v, want %v", got, opened)
		}
		if left := len(b.read(t, plain.DB, "interruptions")) - 1; left <= len(opened) {
			t.Errorf("%d mentions: the crashes left nothing behind, so the test shows nothing", left)
		}
		now = now.Add(2 * staleAfter)
		_ = openIDs(t, plain)
		if left := len(b.read(t, plain.DB, "interruptions")) - 1; left != len(opened) {
			t.Errorf("%d mentions are left, want %d", left, len(opened))
		}
		// What was tidied up can be opened as if it had never been there.
		for _, id := range []string{"i-1", "i-2", "i-3"} {
			if slices.Contains(opened, id) {
				continue
			}
			if i, err := plain.ApplyInterruption(t.Context(), id, opening(id, nodes.Warning)); err != nil || i.InstanceID != id || i.Closed && i.Outcome == "" {
				t.Errorf("%s: %+v, %v", id, i, err)
			}
		}
	})
}

// TestTidyingUpDoesNotLoseAnInterruptionThatIsBeingOpened stops a process between its mention and its item for so long that its
// mention is taken for a leftover.
func TestTidyingUpDoesNotLoseAnInterruptionThatIsBeingOpened(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		b := fresh(t, c)
		now := start
		b.cfg.Now = func() time.Time { return now }
		plain := b.open(t, nil).Store()
		for _, there := range []bool{false, true} {
			id := fmt.Sprintf("i-%v", there)
			if there {
				for _, tr := range []nodes.InterruptionTransition{opening(id, nodes.Rebalance), closing} {
					if _, err := plain.ApplyInterruption(t.Context(), id, tr); err != nil {
						t.Fatal(err)
					}
				}
			}
			updates := 0
			s := b.open(t, func(op string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
				if op == "UpdateItem" {
					if updates++; updates == 2 {
						now = now.Add(2 * staleAfter)
						if got := openIDs(t, plain); slices.Contains(got, id) {
							t.Errorf("open already: %v", got)
						}
					}
				}
				return send()
			}).Store()
			if _, err := s.ApplyInterruption(t.Context(), id, opening(id, nodes.Warning)); err != nil {
				t.Fatal(err)
			}
			if updates <= 2 {
				t.Errorf("%d updates: it was not made to try again", updates)
			}
			if got := openIDs(t, plain); !slices.Contains(got, id) {
				t.Errorf("open are %v, %s is lost", got, id)
			}
		}
	})
}

func TestManyOpenInterruptionsAreListedAlsoWhenTheServerHandsSomeBack(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	plain := b.open(t, nil).Store()
	var want []string
	for k := range 230 {
		id := fmt.Sprintf("i-%03d", k)
		want = append(want, id)
		if _, err := plain.ApplyInterruption(t.Context(), id, opening(id, nodes.Warning)); err != nil {
			t.Fatal(err)
		}
	}
	batches := 0
	s := b.open(t, func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if op == "BatchGetItem" {
			if batches++; batches%2 == 1 {
				var asked struct{ RequestItems json.RawMessage }
				if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
					return nil, err
				}
				return answer(fmt.Sprintf(`{"Responses":{},"UnprocessedKeys":%s}`, asked.RequestItems))
			}
		}
		return send()
	}).Store()
	if got := openIDs(t, s); !slices.Equal(got, want) || batches != 6 {
		t.Errorf("%d of %d listed in %d batches", len(got), len(want), batches)
	}
}

func TestClustersShareTables(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	var dbs []*DB
	for _, name := range []string{"", "blue", "green"} {
		b.cfg.Cluster = name
		dbs = append(dbs, b.open(t, nil))
	}
	for k, d := range dbs {
		if _, err := d.Store().Apply(t.Context(), nodes.AcquireLease{Owner: fmt.Sprint(k), Now: start, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Store().ApplyInterruption(t.Context(), "i-1", opening("i-1", nodes.Warning)); err != nil {
			t.Fatal(err)
		}
		if err := d.EventLog().Append(t.Context(), nodes.Event{At: start, Tick: fmt.Sprint(k)}); err != nil {
			t.Fatal(err)
		}
	}
	for k, d := range dbs {
		r, err := d.Store().Load(t.Context())
		if err != nil || r.LeaseOwner != fmt.Sprint(k) || r.LeaseFence != 1 {
			t.Errorf("cluster %d: %+v, %v", k, r, err)
		}
		if got := openIDs(t, d.Store()); len(got) != 1 {
			t.Errorf("cluster %d: open are %v", k, got)
		}
		for e, err := range d.EventLog().Read(t.Context(), nodes.Query{}) {
			if err != nil || e.Tick != fmt.Sprint(k) {
				t.Errorf("cluster %d reads %+v, %v", k, e, err)
			}
		}
	}
}
