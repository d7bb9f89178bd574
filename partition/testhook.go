package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/testhook"
)

func init() {
	testhook.LookAtSilence = func(config any, every time.Duration) {
		config.(*Config).ghostCheck = every
	}
}
