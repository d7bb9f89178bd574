package secs

import "fmt"

// maxLength is the largest length that three bytes hold.
const maxLength = 1<<24 - 1

// Append appends the encoded item. An item that can't be encoded is an error, and nothing is
// appended then.
func (i Item) Append(dst []byte) ([]byte, error) {
	return i.append(dst, 0)
}

func (i Item) append(dst []byte, depth int) ([]byte, error) {
	length := len(i.Data)
	if i.Format == List {
		length = len(i.Items)
	}
	if err := i.check(length, depth); err != nil {
		return dst, err
	}

	whole := dst // without what was begun, after an error
	bytes := 1
	if length > 1<<16-1 {
		bytes = 3
	} else if length > 1<<8-1 {
		bytes = 2
	}
	dst = append(dst, byte(i.Format)<<2|byte(bytes))
	for shift := 8 * (bytes - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(length>>shift))
	}
	if i.Format != List {
		return append(dst, i.Data...), nil
	}
	for _, child := range i.Items {
		var err error
		if dst, err = child.append(dst, depth+1); err != nil {
			return whole, err
		}
	}
	return dst, nil
}

// check returns why an item can't be encoded.
func (i Item) check(length, depth int) error {
	width := i.Format.width()
	switch {
	case depth > MaxDepth:
		return fmt.Errorf("lists are nested more than %d deep", MaxDepth)
	case length > maxLength:
		return fmt.Errorf("an item of format %s has length %d, at most %d can be encoded", i.Format, length, maxLength)
	case i.Format != List && width == 0:
		return fmt.Errorf("%s is not one of SECS-II", i.Format)
	case width > 0 && length%width != 0:
		return fmt.Errorf("an item of format %s has %d bytes, no multiple of %d", i.Format, length, width)
	}
	return nil
}
