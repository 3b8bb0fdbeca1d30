package inflight

// changeLog records which workers' totals changed last, so that summaries of many workers are recomputed only where
// something changed. It is a ring: a reader that is further behind than its length recomputes everything.
type changeLog struct {
	ids   [changeLogLength]int32
	count uint64 // changes since the ledger was created
}

func (c *changeLog) record(id int32) {
	c.ids[c.count%changeLogLength] = id
	c.count++
}

// AppendChanges appends the workers whose totals changed after the first seen changes, the same one several times where it
// changed several times. count is the number of changes to pass to the next call. ok is false when the log does not reach
// back that far, so that any worker may have changed.
func (l *Ledger) AppendChanges(dst []int32, seen uint64) (ids []int32, count uint64, ok bool) {
	c := &l.changes
	if seen > c.count || c.count-seen > changeLogLength {
		return dst, c.count, false
	}
	for n := seen; n < c.count; n++ {
		dst = append(dst, c.ids[n%changeLogLength])
	}
	return dst, c.count, true
}
