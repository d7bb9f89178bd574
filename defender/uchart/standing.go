package uchart

// Standing tells of an alarm that was raised and not cleared.
type Standing struct {
	Opened string `json:"opened"`          // context that opened it
	Count  int    `json:"count"`           // flagged contexts of it
	Quiet  int    `json:"quiet,omitempty"` // contexts found normal since the last of them
	// Data reports whether all of them had bad data: the process hasn't raised an alarm.
	Data bool `json:"data,omitempty"`
}

// After returns the alarm that stands after one more context; nil is none. An alarm is
// cleared by that many contexts in a row that are found normal, by limits in force before
// it. A context that nothing was concluded on says nothing either way.
func (s *Standing) After(context string, v *Verdict, clearAfter int) *Standing {
	switch {
	case v.State == Maintenance:
		return nil
	case v.Flagged() && s == nil:
		return &Standing{Opened: context, Count: 1, Data: v.State == BadData}
	case v.Flagged():
		return &Standing{Opened: s.Opened, Count: s.Count + 1, Data: s.Data && v.State == BadData}
	case s == nil || v.State == Learning:
		return s
	case s.Quiet+1 >= max(clearAfter, 1):
		return nil
	}
	return &Standing{Opened: s.Opened, Count: s.Count, Quiet: s.Quiet + 1, Data: s.Data}
}
