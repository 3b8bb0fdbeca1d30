package http1

// handlerStackBytes is the approximate stack size of a goroutine that serves a request, in bytes.
const handlerStackBytes = 9 << 10

// growStack grows the stack of a new goroutine at once. Otherwise it would grow three times during a request,
// each time copying more: 3 % of the cost of a short stream.
//
//go:noinline
func growStack(at int) byte {
	var room [handlerStackBytes]byte
	return room[at%handlerStackBytes]
}
