package batch

// raiseAfterCalls is how many calls of the limit's size must succeed before a larger one is tried.
const raiseAfterCalls = 16

// sizeLimit is the learned maximum size of a call to an engine, in items. Some engines accept fewer inputs than their operators
// expect, some only one. The zero value means no limit.
type sizeLimit struct {
	maxItems    int // 0: no call was refused
	callsPassed int // calls that succeeded at this limit
}

// boundedBy is the allowed size when the configured maximum is most.
func (l *sizeLimit) boundedBy(most int) int {
	if l.maxItems == 0 {
		return most
	}
	return min(l.maxItems, most)
}

// recordCall adjusts the limit to the outcome of a call of that size.
func (l *sizeLimit) recordCall(size int, refused bool, most int) {
	switch {
	case refused:
		l.maxItems, l.callsPassed = max(1, size/2), 0
	case l.maxItems > 0 && size >= l.maxItems:
		if l.callsPassed++; l.callsPassed >= raiseAfterCalls {
			l.maxItems += max(1, l.maxItems/8)
			l.callsPassed = 0
		}
		if l.maxItems >= most {
			l.maxItems = 0
		}
	}
}
