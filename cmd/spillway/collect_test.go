package main

import "testing"

func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: maxPercent, 1 << 20: maxPercent, 4 << 20: 600, 16 << 20: 150, 24 << 20: usualPercent, 1 << 30: usualPercent} {
		if got := garbagePercent(live); got != want {
			t.Errorf("%d bytes: %d, want %d", live, got, want)
		}
	}
}
