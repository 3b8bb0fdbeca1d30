// Package lifetime has contexts for what happens once or more for every request. They are in no way different from the
// standard library's for whoever is given one; they cost no memory of their own where they are part of something else, and
// one ends with the other without a map, a channel or a goroutine between them. The
// package never starts a goroutine, and never changes what context.Cause and its kin say.
package lifetime
