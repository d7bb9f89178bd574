package dynamo

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

func TestSettingsAreReadAndCheckedAllAtOnce(t *testing.T) {
	env := func(kv map[string]string) setting.Lookup {
		return func(k string) (string, bool) { v, ok := kv[k]; return v, ok }
	}
	c, err := ConfigFromEnv(env(nil))
	if err != nil || c.KeepDays != 30 {
		t.Errorf("by default %+v, %v", c, err)
	}
	if c, err = ConfigFromEnv(env(map[string]string{"LOGS_KEEP_DAYS": "7"})); err != nil || c.KeepDays != 7 {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, wrong := range []string{"0", "a week", "99999"} {
		if _, err := ConfigFromEnv(env(map[string]string{"LOGS_KEEP_DAYS": wrong})); err == nil || !strings.Contains(err.Error(), "LOGS_KEEP_DAYS") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	p := nodes.DefaultPolicy()
	p.Cluster, p.StateTable, p.LogsTable = "blue", "state", "logs"
	if c = c.For(p); c.Cluster != "blue" || c.Validate() != nil {
		t.Errorf("got %+v, %v", c, c.Validate())
	}
	var se *setting.Error
	if err := (Config{StateTable: "a table", LogsTable: ""}).Validate(); !errors.As(err, &se) || len(se.Problems) != 3 {
		t.Errorf("everything wrong: %v", err)
	}
	if err := (Config{StateTable: "one", LogsTable: "one", KeepDays: 1}).Validate(); !errors.As(err, &se) || len(se.Problems) != 1 {
		t.Errorf("one table for both: %v", err)
	}
}

func TestCheckFindsWhatIsWrongAndChangesNothing(t *testing.T) {
	b := fresh(t, component.DynamoDBLocal())
	d := b.open(t, nil)
	for _, c := range d.Check(t.Context()) {
		if !c.OK || c.Fix != "" {
			t.Errorf("tables as they should be: %+v", c)
		}
	}
	if b.read(t, d, "check") != nil || len(b.items(t, d)) > 0 {
		t.Error("it wrote something")
	}
	if err := d.CreateTables(t.Context()); err != nil {
		t.Errorf("creating what exists: %v", err)
	}

	find := func(d *DB, name string) nodes.Check {
		t.Helper()
		for _, c := range d.Check(t.Context()) {
			if strings.HasPrefix(c.Name, name) {
				return c
			}
		}
		t.Fatalf("nothing is said about %s", name)
		return nodes.Check{}
	}
	off := false
	if _, err := d.api.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &b.cfg.StateTable,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: ptr(expiryAttribute), Enabled: &off}}); err != nil {
		t.Fatal(err)
	}
	if c := find(d, "STATE_TABLE time to live"); c.OK || !strings.Contains(c.Fix, expiryAttribute) {
		t.Errorf("time to live off: %+v", c)
	}
	swapped := &backend{addr: b.addr, cfg: Config{StateTable: b.cfg.LogsTable, LogsTable: b.cfg.StateTable, KeepDays: 1}}
	if c := find(swapped.open(t, nil), "STATE_TABLE"); c.OK || !strings.Contains(c.Detail, "RANGE sk") || !strings.Contains(c.Fix, "another table") {
		t.Errorf("tables swapped: %+v", c)
	}
	missing := &backend{addr: b.addr, cfg: Config{StateTable: "missing", LogsTable: b.cfg.LogsTable, KeepDays: 1}}
	if all := missing.open(t, nil).Check(t.Context()); len(all) != 5 || all[0].OK || !strings.Contains(all[0].Fix, "--create-tables") {
		t.Errorf("a table missing: %+v", all)
	}
	for op, name := range map[string]string{"UpdateItem": "STATE_TABLE write", "PutItem": "LOGS_TABLE write", "GetItem": "STATE_TABLE read", "Query": "LOGS_TABLE read"} {
		denied := b.open(t, func(got string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if got == op {
				return refuse(400, "AccessDeniedException", "User: arn is not authorized")
			}
			return send()
		})
		if c := find(denied, name); c.OK || !strings.Contains(c.Fix, "allow dynamodb:"+op) {
			t.Errorf("%s denied: %+v", op, c)
		}
	}
}

func TestAServerWithoutTimeToLiveServesAndCheckSaysSo(t *testing.T) {
	b := fresh(t, component.Dynalite())
	for _, c := range b.open(t, nil).Check(t.Context()) {
		if strings.HasSuffix(c.Name, "time to live") == c.OK {
			t.Errorf("got %+v", c)
		}
	}
}
