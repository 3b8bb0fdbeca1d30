// Package blockhash cuts prompts into blocks and hashes them, and has the two collections that are keyed by such hashes.
//
// AppendBlockHashes returns a prompt's chained block hashes: a hash covers all bytes before its block too, so equal
// hashes mean equal beginnings. DeriveSeed makes the hashes of different tenants and models differ. Table maps hashes to
// slots, and LRUList orders them by last use.
//
// The package has no clock, goroutine or lock; each value has one writer.
package blockhash
