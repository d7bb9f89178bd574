package partition

import "testing"

// TestFollowersLook is how often followers look whether a stream is missing.
func TestFollowersLook(t *testing.T) {
	for _, n := range []int{0, 1, 30, followersAsOften} {
		if got := followersLook(n); got != followerLooks {
			t.Errorf("of up to %d workers each looks every %s, want %s", n, got, followerLooks)
		}
	}
	most := float64(followersAsOften) / followerLooks.Seconds()
	for _, n := range []int{followersAsOften + 1, 300, 1000, 10000} {
		if rate := float64(n) / followersLook(n).Seconds(); rate > most+0.001 || rate < 0.99*most {
			t.Errorf("%d followers look %.2f times a second, want %.2f", n, rate, most)
		}
	}
}
