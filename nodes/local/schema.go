package local

import "github.com/muster-dev/muster/internal/sqlitefile"

var schema = sqlitefile.Schema{
	Application: 0x4d535433, // "MST3"
	Content:     "the node plane's record and event log",
	Versions: []string{`
CREATE TABLE items (
	record        TEXT NOT NULL,    -- the record's key
	instance      TEXT NOT NULL,    -- of an interruption; '' for the record itself
	closed        INTEGER NOT NULL, -- of an interruption
	expires_epoch INTEGER NOT NULL, -- of a closed interruption; 0: never
	item          BLOB NOT NULL,
	checksum      INTEGER NOT NULL, -- of item
	PRIMARY KEY (record, instance)
) WITHOUT ROWID;
CREATE TABLE events (
	id             INTEGER PRIMARY KEY, -- in the order of appending
	key            TEXT NOT NULL UNIQUE,
	tick           TEXT NOT NULL,
	kind           TEXT NOT NULL,
	action_id      TEXT NOT NULL,
	appended_epoch INTEGER NOT NULL,
	checksum       INTEGER NOT NULL, -- of content
	content        BLOB NOT NULL
);
`},
}
