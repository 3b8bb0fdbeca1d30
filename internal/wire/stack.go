package wire

// stackBytes is about what the stack of a goroutine that answers a request comes to hold.
const stackBytes = 9 << 10

// deepen makes room on the stack of a goroutine that has just begun. Its stack would grow anyway, three times over on the way
// to a request's end, each time with more on it that has to be moved: 3 % of what a short stream costs.
//
//go:noinline
func deepen(at int) byte {
	var room [stackBytes]byte
	return room[at%stackBytes]
}
