// Copies of boards, for ranks that share no memory: a snapshot of one's own to send, and the mirror
// of a peer's that it is written to.
#pragma once

#include "transports/board.hpp"

namespace treering {

// Copies `from`, which its rank may be writing, to `to`, which others may be reading, so that
// neither is ever believed half written: a state is copied after what it speaks of, and an entry
// that has a guard (wait, ops, vote, mail) and changes meanwhile is left out. Who reads the mirror
// reads as it would read the board. The core is not copied: it means nothing on another host.
void copy_board(const Board& from, Board& to);

}  // namespace treering
