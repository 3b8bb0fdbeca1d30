package pick

// dirtyList is a set of small numbers that can be listed.
type dirtyList struct {
	has  []bool
	list []int32
}

func newDirtyList(n int) dirtyList { return dirtyList{make([]bool, n), make([]int32, 0, n)} }

func (d *dirtyList) add(i int32) {
	if !d.has[i] {
		d.has[i] = true
		d.list = append(d.list, i)
	}
}

func (d *dirtyList) clear() {
	for _, i := range d.list {
		d.has[i] = false
	}
	d.list = d.list[:0]
}
