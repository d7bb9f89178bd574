package secs

import (
	"errors"
	"fmt"
)

// Limits of what is decoded.
const (
	MaxDepth = 32      // of lists within lists
	MaxItems = 1 << 20 // of one message, lists included
)

// ErrCorrupt is what the errors of [Decode] wrap.
var ErrCorrupt = errors.New("no SECS-II item")

// Decode returns the item that data holds. The item shares the memory of data. It takes
// memory in proportion to data, whatever that claims.
func Decode(data []byte) (Item, error) {
	d := decoder{data: data}
	item, err := d.item(0)
	if err == nil && d.at < len(data) {
		err = fmt.Errorf("%d bytes follow it", len(data)-d.at)
	}
	if err != nil {
		return Item{}, fmt.Errorf("%w: at byte %d of %d: %w", ErrCorrupt, d.at, len(data), err)
	}
	return item, nil
}

type decoder struct {
	data  []byte
	at    int
	items int
}

func (d *decoder) item(depth int) (Item, error) {
	format, length, err := d.header()
	if err != nil {
		return Item{}, err
	}
	d.items++
	if d.items > MaxItems {
		return Item{}, fmt.Errorf("there are more than %d items", MaxItems)
	}
	if format == List {
		return d.list(length, depth)
	}

	width := format.width()
	switch {
	case width == 0:
		return Item{}, fmt.Errorf("%s is not one of SECS-II", format)
	case length > len(d.data)-d.at:
		return Item{}, fmt.Errorf("the item claims %d bytes and %d are left", length, len(d.data)-d.at)
	case length%width != 0:
		return Item{}, fmt.Errorf("an item of format %s has %d bytes, no multiple of %d", format, length, width)
	}
	end := d.at + length
	item := Item{Format: format, Data: d.data[d.at:end:end]}
	d.at = end
	return item, nil
}

func (d *decoder) list(length, depth int) (Item, error) {
	if depth == MaxDepth {
		return Item{}, fmt.Errorf("lists are nested more than %d deep", MaxDepth)
	}
	// An item has two bytes at least: a list can't be longer than what is left.
	if length > (len(d.data)-d.at)/2 {
		return Item{}, fmt.Errorf("the list claims %d items and %d bytes are left", length, len(d.data)-d.at)
	}
	list := Item{Format: List}
	if length > 0 {
		list.Items = make([]Item, length)
	}
	for i := range list.Items {
		var err error
		if list.Items[i], err = d.item(depth + 1); err != nil {
			return Item{}, err
		}
	}
	return list, nil
}

// header reads the format and the length of an item.
func (d *decoder) header() (Format, int, error) {
	if d.at == len(d.data) {
		return 0, 0, errors.New("an item is missing")
	}
	first := d.data[d.at]
	bytes := int(first & 3)
	if bytes == 0 {
		return 0, 0, errors.New("the item has no length")
	}
	if len(d.data)-d.at < 1+bytes {
		return 0, 0, errors.New("the item's length is cut off")
	}
	length := 0
	for _, b := range d.data[d.at+1 : d.at+1+bytes] {
		length = length<<8 | int(b)
	}
	d.at += 1 + bytes
	return Format(first >> 2), length, nil
}
