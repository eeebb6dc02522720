// Room in the store, held for tensors that are made later.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_TENSOR_ROOM_H_
#define SPARSEFW_SERVER_TENSORS_STORE_TENSOR_ROOM_H_

#include <cstdint>
#include <utility>

#include "server/tensors/store/budget.h"

namespace sparsefw::server {

// The room that tensors need in the store.
struct RoomNeed {
  int64_t bytes = 0;   // of memory and of disk
  int64_t places = 0;  // one a tensor
};

// Counts in every budget of ours, those of the tenant too, until it is destroyed. Move only.
class TensorRoom {
 public:
  TensorRoom() = default;
  TensorRoom(Budget::Reservation bytes, Budget::Reservation places)
      : bytes_(std::move(bytes)), places_(std::move(places)) {}

  bool HasOne(int64_t bytes) const { return bytes_.amount() >= bytes && places_.amount() >= 1; }
  // Takes the room of one tensor out of it, which it has.
  TensorRoom TakeOne(int64_t bytes) { return {bytes_.Split(bytes), places_.Split(1)}; }

 private:
  Budget::Reservation bytes_;
  Budget::Reservation places_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_TENSOR_ROOM_H_
