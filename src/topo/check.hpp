// What all readers share once the nodes stand: missing numbers are derived or assumed, and the
// defects that show in the graph are found, by kind and not by file.
#pragma once

#include "topo/graph.hpp"

namespace treering::topo {

// Every link gets a bandwidth and a source; findings are added. To be called once, last.
void finish(Graph& graph);

// The parts of finish().
void fill_bandwidth(Graph& graph);   // bandwidth of links, with what was assumed
void check_cpus(Graph& graph);       // masks, numbers, gaps
void check_devices(Graph& graph);    // addresses, bridges, unknown classes, partitions
void check_gpu_links(Graph& graph);  // islands, uneven and missing links, odd numbers
void check_nics(Graph& graph);       // virtual, slow, uneven, order, shared cards
void check_stated(Graph& graph);     // the pairs that were stated against the tree

}  // namespace treering::topo
