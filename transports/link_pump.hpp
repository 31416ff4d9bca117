// LinkPump: what moves the messages of links that memory alone does not carry (transports/tcp).
//
// Whoever waits for a link drives it; a transport of shared memory has none.
#pragma once

#include <chrono>

namespace treering {

class LinkPump {
 public:
  virtual ~LinkPump() = default;
  // Sends what is posted, receives what has come, gives credit. Never blocks. Returns whether
  // anything moved. Any thread.
  virtual bool progress() = 0;
  // The caller posts no more for now and will not come back soon: what cannot be sent at once is
  // sent by a thread of the pump's own.
  virtual void flush() = 0;
  // Sleeps until there is something to do, at most so long.
  virtual void wait(std::chrono::nanoseconds at_most) = 0;
};

}  // namespace treering
