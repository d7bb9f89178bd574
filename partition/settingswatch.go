package partition

import (
	"fmt"
	"sync/atomic"

	"github.com/muster-dev/muster/partition/internal/record"
)

// settingsWatch has a worker leave whose group has other settings than it has: it began
// beside one with others, before either of them could see the other's lease. changed is
// called by the watch of the map's bucket.
type settingsWatch struct {
	cfg      Config
	rejected rejections
	post     func(input)
	conflict atomic.Pointer[error] // why the worker leaves although nobody asked it to
}

// err returns why the worker leaves, nil if the settings agree.
func (s *settingsWatch) err() error {
	if err := s.conflict.Load(); err != nil {
		return *err
	}
	return nil
}

// changed takes in what the group's record says now.
func (s *settingsWatch) changed(value []byte) {
	have, err := record.DecodeLayout(value)
	if err != nil {
		s.rejected.report("layout", layoutKey, err)
		return
	}
	hard := binding(differences(have, s.cfg))
	if len(hard) == 0 {
		return
	}

	err = fmt.Errorf("the settings of group %s were changed while this worker runs, and it leaves: %w", s.cfg.Name, &SettingsError{Group: s.cfg.Name, Differences: hard})
	if s.conflict.CompareAndSwap(nil, &err) {
		s.cfg.Logger.Error("The settings of the group were changed; leaving.", "err", err)
		s.post(leaveInput{})
	}
}
