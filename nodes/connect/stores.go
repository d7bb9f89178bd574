package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
)

// Stores is where the record and the event log are kept.
type Stores struct {
	Store    nodes.Store
	EventLog nodes.EventLog
	Where    string // for people
	closers
	check func(context.Context) []nodes.Check
}

// openStores opens the record and the event log: the tables if they are set, else the directory, which is created if need be. Tables
// are not asked for before the first call.
func openStores(ctx context.Context, s Settings, o Options) (*Stores, error) {
	if s.Policy.StateTable != "" {
		return openTables(ctx, s, o.Clock)
	}
	return openDir(ctx, s, o)
}

// FindStores is openStores for those who only read: it refuses a directory in which there is no store.
func FindStores(ctx context.Context, s Settings, o Options) (*Stores, error) {
	inDir := s.Policy.StateTable == ""
	if inDir && o.Local != nil && !o.Local.Holds(s.Local.Dir) {
		return nil, fmt.Errorf("no store in %s: begin one with muster nodes run or tick, "+
			"or set DIR, or STATE_TABLE and LOGS_TABLE, to where it is", s.Local.Dir)
	}
	return openStores(ctx, s, o)
}

// CreateTables creates those of the two tables that are not there yet, and waits until they can be used. The settings have to name them.
func CreateTables(ctx context.Context, s Settings) error {
	db, _, err := tables(ctx, s, nil)
	if err != nil {
		return err
	}
	return db.CreateTables(ctx)
}

func openTables(ctx context.Context, s Settings, clock nodes.Clock) (*Stores, error) {
	db, region, err := tables(ctx, s, clock)
	if err != nil {
		return nil, err
	}
	where := fmt.Sprintf("DynamoDB, tables %s and %s in %s", s.Tables.StateTable, s.Tables.LogsTable, region)
	return &Stores{Store: db.Store(), EventLog: db.EventLog(), Where: where, check: db.Check}, nil
}

// tables makes the client of the tables that the settings name. Nothing is asked for yet.
func tables(ctx context.Context, s Settings, clock nodes.Clock) (db *dynamo.DB, region string, err error) {
	if clock != nil {
		s.Tables.Now = clock.Now
	}
	var options []func(*config.LoadOptions) error
	if s.AWS.Region != "" {
		options = append(options, config.WithRegion(s.AWS.Region))
	}
	ac, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, "", opening("the tables", err)
	}
	if ac.Region == "" {
		return nil, "", opening("the tables", errors.New("no AWS region is known: set AWS_REGION"))
	}
	db, err = dynamo.New(ac, s.Tables, func(o *dynamodb.Options) {
		if s.AWS.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.AWS.Endpoint)
		}
	})
	if err != nil {
		return nil, "", opening("the tables", err)
	}
	return db, ac.Region, nil
}

func openDir(ctx context.Context, s Settings, o Options) (*Stores, error) {
	if o.Local == nil {
		err := errors.New("this program keeps nothing on its disk: set STATE_TABLE and LOGS_TABLE")
		return nil, opening("the record", err)
	}
	var now func() time.Time
	if o.Clock != nil {
		now = o.Clock.Now
	}

	store, err := o.Local.Open(ctx, s.Local.Dir, s.Policy.Cluster, now)
	if err != nil {
		return nil, opening("the record", err)
	}
	check := func(ctx context.Context) []nodes.Check {
		c := nodes.Check{Name: "store: " + s.Local.Dir, OK: true}
		r, err := store.Load(ctx)
		if err != nil {
			c.OK, c.Detail = false, err.Error()
			c.Fix = "restore the directory from a backup, or set DIR to another one to begin a new record"
		} else {
			c.Detail = fmt.Sprintf("record of %s, revision %d", r.PK, r.Revision)
		}
		return []nodes.Check{c}
	}
	return &Stores{Store: store, EventLog: store, Where: s.Local.Dir, closers: closers{store.Close}, check: check}, nil
}
