// Package discover says which workers there are, from four sources: the configuration, a file that is watched, names in
// DNS, and workers that register themselves. Sources merges them into one list. What an operator wrote wins over what was
// found in DNS, and that over what a worker says of itself.
//
// It never talks to a worker and never judges one. Nothing that fails takes a worker away: of a file with a mistake, and
// of a name whose lookup fails, the last good list stays in force; a name that answers with nothing is believed after a
// grace. Only a worker that registered itself is let go when it is not heard of, for that is what it agreed to.
//
// A worker may register only at an address that the operator allows. The address is checked and not the name, and what
// was checked is what is dialled from then on.
package discover
