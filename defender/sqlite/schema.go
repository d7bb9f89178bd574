package sqlite

import "github.com/muster-dev/muster/internal/sqlitefile"

var results = sqlitefile.Schema{
	Application: 0x4d535431, // "MST1"
	Content:     "U-charts",
	Versions: []string{`
CREATE TABLE ucharts (
	id           INTEGER PRIMARY KEY,
	chamber      TEXT NOT NULL,
	context      TEXT NOT NULL,
	recipe       TEXT NOT NULL,
	product      TEXT NOT NULL,
	lot          TEXT NOT NULL,
	wafer        TEXT NOT NULL,
	start_ns     INTEGER NOT NULL,
	end_ns       INTEGER NOT NULL,
	chart        BLOB NOT NULL,
	verdict      TEXT NOT NULL,
	alarm_state  TEXT,
	alarm_reason TEXT,
	expires_ns   INTEGER NOT NULL
);
CREATE UNIQUE INDEX ucharts_context ON ucharts (chamber, context);
CREATE INDEX ucharts_history ON ucharts (chamber, recipe, end_ns, context);
CREATE INDEX ucharts_expires ON ucharts (expires_ns);
CREATE INDEX ucharts_alarms ON ucharts (end_ns, context) WHERE alarm_state IS NOT NULL;
CREATE INDEX ucharts_chamber_alarms ON ucharts (chamber, end_ns, context) WHERE alarm_state IS NOT NULL;
CREATE TABLE fences (
	chamber        TEXT PRIMARY KEY,
	map_version    INTEGER NOT NULL,
	claim_revision INTEGER NOT NULL
) WITHOUT ROWID;
-- Defenders of the version before count attempts here.
CREATE TABLE attempts (
	chamber    TEXT NOT NULL,
	context    TEXT NOT NULL,
	n          INTEGER NOT NULL,
	expires_ns INTEGER NOT NULL,
	PRIMARY KEY (chamber, context)
) WITHOUT ROWID;
CREATE TABLE chambers (
	tool   TEXT NOT NULL,
	name   TEXT NOT NULL,
	weight INTEGER NOT NULL,
	PRIMARY KEY (tool, name)
) WITHOUT ROWID;
`},
}

var tcharts = sqlitefile.Schema{
	Application: 0x4d535432, // "MST2"
	Content:     "T-charts",
	Versions: []string{`
CREATE TABLE tcharts (
	id         INTEGER PRIMARY KEY,
	chamber    TEXT NOT NULL,
	context    TEXT NOT NULL,
	expires_ns INTEGER NOT NULL,
	blob       BLOB NOT NULL
);
CREATE UNIQUE INDEX tcharts_context ON tcharts (chamber, context);
CREATE INDEX tcharts_expires ON tcharts (expires_ns);
`},
}
