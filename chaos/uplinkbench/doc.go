// Command uplinkbench measures what a parent tier's end of many uplinks costs: children in one process say something new
// of some of their models all the time, and another process takes it, keeps a capacity.Book of it and makes views, as a
// gateway and a global node do. Printed are the parent's processor time, its memory, and how old what it holds is: since
// it was made at the child, which is more than since it arrived, and then the same while one child more floods, lies
// or sends garbage. It never fails for a target that was missed, unless
// asked to with -strict: machines differ.
package main
