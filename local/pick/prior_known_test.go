package pick

import "testing"

func TestKnownGPU(t *testing.T) {
	for name, want := range map[string]bool{
		"H100": true, "h100x4": true, "H100 SXM5": true, "A100-80G": true, "A100-40G": true, "A100-40GBx2": true, "L4": true, "L40S": true, "MI300X": true, "MI300Xx8": true,
		"H1000": false, "L40": false, "A1000": false, "RTX4090": false, "": false, "x4": false,
	} {
		if got := KnownGPU(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
