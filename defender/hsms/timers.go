package hsms

import "time"

// Timers are the timeouts of SEMI E37, by what they are for. Zero is the default.
type Timers struct {
	Reply       time.Duration // T3: for the reply to a data message; 45 s
	Separation  time.Duration // T5: between two attempts to connect; 10 s
	Control     time.Duration // T6: for the reply to a control message, and for writing; 5 s
	NotSelected time.Duration // T7: of a connection that was accepted and not selected; 10 s
	Character   time.Duration // T8: between bytes of one message; 5 s
	Linktest    time.Duration // between two tests of the link; 30 s
}

// orDefaults returns the timers with the defaults of SEMI E37 for those that are zero.
func (t Timers) orDefaults() Timers {
	for _, d := range [...]struct {
		timer    *time.Duration
		standard time.Duration
	}{
		{&t.Reply, 45 * time.Second}, {&t.Separation, 10 * time.Second}, {&t.Control, 5 * time.Second},
		{&t.NotSelected, 10 * time.Second}, {&t.Character, 5 * time.Second}, {&t.Linktest, 30 * time.Second},
	} {
		if *d.timer == 0 {
			*d.timer = d.standard
		}
	}
	return t
}
