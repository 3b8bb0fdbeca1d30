package pick

// HeldBack says, after a choice found nobody, whether some worker had room but for long requests' having their share of
// it already. Such a request waits for the share and not for room: shorter ones may pass it.
func HeldBack(v *View) bool {
	for i := range v.gates {
		if v.room(i) == dropLong {
			return true
		}
	}
	return false
}
