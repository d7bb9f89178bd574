package cassandra

import (
	"context"
	"fmt"
	"strings"
)

// tables creates what the store needs. T-charts are written once and expire together: time windows let whole files go. A chamber's
// partition is read by ranges and grows slowly, some megabytes a month.
const tables = `
CREATE TABLE IF NOT EXISTS tcharts (
	chamber text, context text, blob blob, expires_ns bigint,
	PRIMARY KEY ((chamber, context))
) WITH compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', 'compaction_window_size': '6'}
  AND compression = {'enabled': 'false'} AND comment = 'T-charts: encoded, compressed already';

CREATE TABLE IF NOT EXISTS chamber_rows (
	chamber text, kind text, recipe text, end_ns bigint, context text,
	fence text static,
	of_recipe text, of_end_ns bigint,
	product text, lot text, wafer text, start_ns bigint,
	chart blob, verdict text, alarm_state text, alarm_reason text,
	n int, expires_ns bigint,
	PRIMARY KEY ((chamber), kind, recipe, end_ns, context)
) WITH CLUSTERING ORDER BY (kind ASC, recipe ASC, end_ns DESC, context DESC)
  AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', 'compaction_window_size': '7'}
  AND comment = 'U-charts, alarms and the fence of a chamber';

CREATE TABLE IF NOT EXISTS chambers (
	bucket int, tool text, name text, weight bigint,
	PRIMARY KEY ((bucket), tool, name)
) WITH comment = 'registered chambers';

CREATE TABLE IF NOT EXISTS alarmed (
	bucket int, chamber text,
	PRIMARY KEY ((bucket), chamber)
) WITH comment = 'chambers that have had an alarm';

CREATE TABLE IF NOT EXISTS labels (
	bucket int, chamber text, context text, label text,
	PRIMARY KEY ((bucket), chamber, context)
) WITH comment = 'faults that contexts had, as people found out';
`

// Replication returns the replication of a keyspace with this number of replicas in a datacenter or, if datacenter is "", in each that the
// cluster has when the keyspace is created.
func Replication(datacenter string, replicas int) string {
	if datacenter == "" {
		datacenter = "replication_factor"
	}
	return fmt.Sprintf("{'class': 'NetworkTopologyStrategy', '%s': %d}", strings.ReplaceAll(datacenter, "'", "''"), replicas)
}

// Schema returns the statements that create a keyspace and its tables where they don't exist, in their order. replication is the
// keyspace's, as CQL has it: [Replication] returns the usual ones.
func Schema(keyspace, replication string) []string {
	out := []string{fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = %s", keyspace, replication)}
	for statement := range strings.SplitSeq(strings.TrimSpace(tables), ";\n") {
		statement = strings.TrimSuffix(strings.TrimSpace(statement), ";")
		out = append(out, strings.Replace(statement, "IF NOT EXISTS ", "IF NOT EXISTS "+keyspace+".", 1))
	}
	return out
}

// CreateSchema creates what [Schema] returns. It needs the permission to create; [Open] doesn't.
func CreateSchema(ctx context.Context, c Config, replication string) error {
	if err := c.check(); err != nil {
		return err
	}
	session, err := c.connectTo("")
	if err != nil {
		return err
	}
	defer session.Close()
	for _, statement := range Schema(c.Keyspace, replication) {
		if err := session.Query(statement).ExecContext(ctx); err != nil {
			first, _, _ := strings.Cut(statement, "\n")
			return fmt.Errorf("creating the schema (%s): %w", strings.TrimSuffix(first, " ("), err)
		}
	}
	return session.AwaitSchemaAgreement(ctx)
}
