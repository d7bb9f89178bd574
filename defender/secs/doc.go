// Package secs is SECS-II (SEMI E5): the items that messages consist of, and their encoding.
//
// An item holds its values as they travel. So encoding and decoding copy bytes, and a number
// is read when it is asked for.
package secs
