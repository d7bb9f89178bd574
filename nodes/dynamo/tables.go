package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/muster-dev/muster/nodes"
)

// tableReady is how long a new table may take.
const tableReady = 2 * time.Minute

// table is a table as it should be.
type table struct {
	env, name string
	sorted    bool // it has a sort key
}

func (d *DB) tables() []table {
	return []table{{"STATE_TABLE", d.cfg.StateTable, false}, {"LOGS_TABLE", d.cfg.LogsTable, true}}
}

// CreateTables creates what does not exist yet of the two tables, billed by request, with their time to live, and waits until they
// can be used. Tables that exist stay as they are; Check reports whether they are right.
func (d *DB) CreateTables(ctx context.Context) error {
	for _, t := range d.tables() {
		if err := d.createTable(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) createTable(ctx context.Context, t table) error {
	in := &dynamodb.CreateTableInput{
		TableName: &t.name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: ptr(keyAttribute), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: ptr(keyAttribute), KeyType: types.KeyTypeHash}},
	}
	if t.sorted {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: ptr(sortAttribute), AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: ptr(sortAttribute), KeyType: types.KeyTypeRange})
	}
	_, err := d.api.CreateTable(ctx, in)
	var there *types.ResourceInUseException
	created := err == nil
	if err != nil && !errors.As(err, &there) {
		return d.explain("creating it", t.name, "CreateTable", err)
	}
	wait := dynamodb.NewTableExistsWaiter(d.api, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, 5*time.Second
	})
	if err := wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &t.name}, tableReady); err != nil {
		return d.explain("waiting until it can be used", t.name, "DescribeTable", err)
	}
	if !created {
		return nil
	}
	on := true
	_, err = d.api.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &t.name, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: ptr(expiryAttribute), Enabled: &on},
	})
	if err != nil && !unknownOperation(err) { // some servers other than Amazon's never delete items; Check says so
		return d.explain("setting its time to live", t.name, "UpdateTimeToLive", err)
	}
	return nil
}

func ptr(s string) *string { return &s }

func unknownOperation(err error) bool {
	var refusal smithy.APIError
	return errors.As(err, &refusal) && refusal.ErrorCode() == "UnknownOperationException"
}

// Check looks at both tables, their keys and their time to live, and at whether they may be read and written; it changes nothing.
// It needs dynamodb:DescribeTable and dynamodb:DescribeTimeToLive, which the reconciler itself does not.
func (d *DB) Check(ctx context.Context) []nodes.Check {
	var out []nodes.Check
	for _, t := range d.tables() {
		shape, there := d.checkShape(ctx, t)
		if out = append(out, shape); !there {
			continue // one finding says it
		}
		out = append(out, d.checkExpiry(ctx, t), d.checkRead(ctx, t), d.checkWrite(ctx, t))
	}
	return out
}

// checkShape looks at the keys; there is false for a table that does not exist.
func (d *DB) checkShape(ctx context.Context, t table) (c nodes.Check, there bool) {
	c = nodes.Check{Name: t.env + " " + t.name}
	res, err := d.api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &t.name})
	if err != nil {
		var missing *types.ResourceNotFoundException
		return failed(c, d.explain("looking at it", t.name, "DescribeTable", err)), !errors.As(err, &missing)
	}
	keys := ""
	for _, k := range res.Table.KeySchema {
		for _, a := range res.Table.AttributeDefinitions {
			if *a.AttributeName == *k.AttributeName {
				keys += fmt.Sprintf("%s %s (%s) ", k.KeyType, *k.AttributeName, a.AttributeType)
			}
		}
	}
	want := "HASH pk (S) "
	if t.sorted {
		want += "RANGE sk (S) "
	}
	c.Detail = fmt.Sprintf("%s, keys: %s", res.Table.TableStatus, keys)
	switch {
	case keys != want:
		c.Fix = "keys can't be changed: name another table, with keys " + want
	case res.Table.TableStatus != types.TableStatusActive && res.Table.TableStatus != types.TableStatusUpdating:
		c.Fix = "wait until the table is ACTIVE"
	default:
		c.OK = true
	}
	return c, true
}

func (d *DB) checkExpiry(ctx context.Context, t table) nodes.Check {
	c := nodes.Check{Name: t.env + " time to live"}
	res, err := d.api.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.name})
	if err != nil {
		return failed(c, d.explain("looking at its time to live", t.name, "DescribeTimeToLive", err))
	}
	ttl := res.TimeToLiveDescription
	if ttl == nil || ttl.TimeToLiveStatus != types.TimeToLiveStatusEnabled && ttl.TimeToLiveStatus != types.TimeToLiveStatusEnabling {
		c.Detail, c.Fix = "off: the table grows without limit", "turn it on for attribute "+expiryAttribute
		return c
	}
	if ttl.AttributeName == nil || *ttl.AttributeName != expiryAttribute {
		c.Detail, c.Fix = "it is set on another attribute", "set it on attribute "+expiryAttribute
		return c
	}
	c.OK, c.Detail = true, "on "+expiryAttribute
	return c
}

func (d *DB) checkRead(ctx context.Context, t table) nodes.Check {
	c := nodes.Check{Name: t.env + " read"}
	var err error
	if t.sorted {
		_, err = (&EventLog{DB: d}).listDays(ctx, nodes.Query{})
	} else {
		_, err = d.Store().OpenInterruptions(ctx)
	}
	if err != nil {
		return failed(c, err)
	}
	c.OK, c.Detail = true, "permitted"
	return c
}

// checkWrite tries a write whose condition can't hold: DynamoDB checks the permission first.
func (d *DB) checkWrite(ctx context.Context, t table) nodes.Check {
	c := nodes.Check{Name: t.env + " write"}
	never := "attribute_exists(pk) AND attribute_not_exists(pk)"
	var err error
	if t.sorted {
		_, err = d.api.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &t.name, Item: item{keyAttribute: text("check"), sortAttribute: text("check")}, ConditionExpression: &never,
		})
		err = d.refusedOnlyByCondition("writing", t.name, "PutItem", err)
	} else {
		_, err = d.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &t.name, Key: item{keyAttribute: text("check")}, ConditionExpression: &never,
		})
		err = d.refusedOnlyByCondition("writing", t.name, "UpdateItem", err)
	}
	if err != nil {
		return failed(c, err)
	}
	c.OK, c.Detail = true, "permitted"
	return c
}

func (d *DB) refusedOnlyByCondition(doing, table, api string, err error) error {
	if err == nil || conditionFailed(err) {
		return nil
	}
	return d.explain(doing, table, api, err)
}

func failed(c nodes.Check, err error) nodes.Check {
	c.Detail = err.Error()
	var e *Error
	if errors.As(err, &e) {
		c.Detail, c.Fix = e.Why, e.Fix
	}
	if c.Fix == "" {
		c.Fix = "try again"
	}
	return c
}
