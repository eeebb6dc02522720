#include "server/net/open_connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

Descriptor Socket() { return Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST(OpenConnectionsTest, CountsThoseThatAreOpen) {
  OpenConnections open;
  EXPECT_EQ(open.Count(), 0);
  Descriptor one = Socket();
  Descriptor two = Socket();
  open.Add(one);
  open.Add(two);
  EXPECT_EQ(open.Count(), 2);
  one = Descriptor();
  EXPECT_EQ(open.Count(), 1);
  EXPECT_EQ(open.Count(), 1);
  two = Descriptor();
  EXPECT_EQ(open.Count(), 0);
}

TEST(OpenConnectionsTest, ADescriptorThatWasUsedAgainIsAnother) {
  OpenConnections open;
  Descriptor one = Socket();
  const int number = one.get();
  open.Add(one);
  one = Descriptor();
  const Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(file.get(), number) << "the lowest free one";
  EXPECT_EQ(open.Count(), 0);
}

TEST(OpenConnectionsTest, AnotherSocketUnderTheSameNumber) {
  OpenConnections open;
  Descriptor one = Socket();
  const int number = one.get();
  open.Add(one);
  one = Descriptor();
  const Descriptor other = Socket();
  ASSERT_EQ(other.get(), number);
  EXPECT_EQ(open.Count(), 0);
  open.Add(other);
  EXPECT_EQ(open.Count(), 1);
}

}  // namespace
}  // namespace sparsefw::server
