package partition

import "github.com/muster-dev/muster/partition/internal/record"

// question is what a run asks.
type question interface{ question() }

type (
	askStream struct{} // what contradicts that the stream is the one it was: answer.what
	// askWaiting asks whether the consumer has messages to deliver, or delivered and not settled:
	// yes; and how many it has delivered since a reset: sequence. For a silent slot, which has
	// nothing in hand, an empty stream may answer instead: empty.
	askWaiting struct{ silent bool }
	askFirst   struct{}             // the first stored message: sequence, 0 for none
	askStored  struct{ original }   // whether a message is in the stream: yes; what has its sequence instead: what
	askTake    struct{}             // the pin off and the consumer reset, or created
	askCreate  struct{}             // the consumer created, if it is gone
	askRenew   struct{}             // the consumer deleted and created
	askUnpin   struct{}             // the pin off, tried until it is
	askReset   struct{}             // the pin off and the consumer reset, tried until both are
	askConfirm struct{ mail *mail } // that the server knows this acknowledgement
	askSpace   struct{}             // of the retry stream: sequence, claims
	askClaim   struct {
		fence  Fence
		expect uint64
	}
	askCount struct{} // counts, recorded
	askTail  struct{ key string }
	askHead  struct {
		key  string
		from uint64 // sequence, the first has 1
	}
	askAttempts      struct{ key string } // attempts, sequence; 0: there is no record
	askStoreAttempts struct {
		key      string
		attempts record.Attempts
		expect   uint64
	}
	askErase     struct{ original } // yes: it was there
	askRemove    struct{ sequence uint64 }
	askStoreCopy struct {
		mail     *mail
		message  Message
		attempts int
		expect   uint64
	}
)

func (askStream) question()        {}
func (askWaiting) question()       {}
func (askFirst) question()         {}
func (askStored) question()        {}
func (askTake) question()          {}
func (askCreate) question()        {}
func (askRenew) question()         {}
func (askUnpin) question()         {}
func (askReset) question()         {}
func (askConfirm) question()       {}
func (askSpace) question()         {}
func (askClaim) question()         {}
func (askCount) question()         {}
func (askTail) question()          {}
func (askHead) question()          {}
func (askErase) question()         {}
func (askAttempts) question()      {}
func (askStoreAttempts) question() {}
func (askRemove) question()        {}
func (askStoreCopy) question()     {}

// answer answers any question; each uses some of the fields.
type answer struct {
	err      error
	what     string
	yes      bool
	empty    bool // the stream has no message: nothing waits, and nothing is missing
	sequence uint64
	claims   []record.QueueClaim
	counts   map[string]int // queued messages by key
	recorded []string       // keys with a record of attempts
	attempts record.Attempts
	queued   *queuedMessage // nil: none
	outcome  outcome
}

// mail is one thing that a pull brought: a message, or the status that ends a pull. status,
// description and pullNumber are of a status; the rest is of a message, which is told from
// every other one of its stream by its original.
type mail struct {
	status      string // "" for a message
	description string
	pullNumber  int // of the pull that a status ends

	pin        string // of the consumer, as the message says
	unreadable bool   // it is not for handlers, and was logged
	original
	finest  int    // slot of the largest slot count
	number  uint64 // of the consumer's deliveries since it was reset
	behind  uint64 // how many more messages the consumer had to deliver then
	message Message
	body    any // what the shell needs to settle it
}
